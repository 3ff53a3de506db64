"""Imports every module of an installed mmroute whose dependencies are there."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import mmroute


def main() -> None:
    """Fail on a module of mmroute that is missing, and name packages that are."""
    missing = set()
    for module in pkgutil.walk_packages(mmroute.__path__, "mmroute."):
        if module.name == "mmroute.__main__":  # it runs a command
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "mmroute").partition(".")[0] == "mmroute":
                raise
            missing.add(error.name)
    sys.stdout.write(f"not installed: {', '.join(sorted(filter(None, missing))) or 'nothing'}\n")


if __name__ == "__main__":
    main()
