"""Without real models there are no tests of them, and without Ray none of its own."""

from __future__ import annotations

import importlib.util
import os

collect_ignore_glob: list[str] = []
if not os.environ.get("MMROUTE_MODELS"):
    collect_ignore_glob += ["test_real_models.py", "test_media_vectors.py"]
if importlib.util.find_spec("ray") is None:
    collect_ignore_glob += ["ray/*"]
