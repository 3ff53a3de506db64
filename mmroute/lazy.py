"""Names of a package that are imported at their first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package."""

    def find(name: str) -> object:
        if name not in places:
            # With name and obj, Python's own traceback proposes the nearest name.
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        value: object = getattr(importlib.import_module(places[name]), name)
        return value

    return find
