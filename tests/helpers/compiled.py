"""The optional extensions, compiled from this checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from native_build import build_extensions


def built(folder: Path, module: str) -> ModuleType:
    """An extension of `native_build.SOURCES`, compiled into a folder."""
    (path,) = build_extensions(folder, module)
    spec = importlib.util.spec_from_file_location(module.rpartition(".")[2], path)
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension
