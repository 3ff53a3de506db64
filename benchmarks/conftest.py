"""The script that writes RESULTS.md and what it is made of hold no tests."""

from __future__ import annotations

collect_ignore_glob = ["peers/*", "*_part*.py", "page.py", "photographs.py", "render_server.py",
                       "results.py", "where.py"]  # fmt: skip
