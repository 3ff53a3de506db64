"""Measures all of ``README.md``, and writes it: some hours on two cores.

    python benchmarks/routers/everything.py [MODEL]

The parts are programs with options of their own: ``routebench.py`` and ``load.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
PARTS = (
    ("routebench.py",),
    ("load.py", "--engines", "2"),
    ("load.py", "--engines", "4", "--scheduled", "0"),
)


def main() -> None:
    """Run the parts in turn; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-VL-3B-Instruct")
    model = parser.parse_args().model
    for program, *options in PARTS:
        command = [sys.executable, str(HERE / program), model, *options, "--page", str(PAGE)]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(code)


if __name__ == "__main__":
    main()
