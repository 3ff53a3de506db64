"""The folders of family specs: the one of this package, and those of installed ones."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from mmroute.errors import SpecError
from mmroute.plugins import entry_points, owner

ENTRY_POINTS: Final = "mmroute.specs"
"""Entry point group of other packages' specs: each names a package that holds ``*.toml``."""
OWN_PACKAGE: Final = "mmroute"


@cache
def spec_folders() -> tuple[tuple[str, Traversable], ...]:
    """The packages that hold family specs, and their folders: first that of mmroute."""
    packaged = importlib.resources.files(OWN_PACKAGE) / "model_specs"
    # In a source checkout the specs stand beside the package, and a wheel takes them in.
    root = packaged if packaged.is_dir() else Path(__file__).parents[2] / "model_specs"
    found = [(OWN_PACKAGE, root)]
    for point in entry_points(ENTRY_POINTS):
        try:
            folder = importlib.resources.files(point.value)
            list(folder.iterdir())
        except (ImportError, OSError, TypeError) as error:
            raise SpecError(
                f"{owner(point)}: the entry point {point.name!r} of {ENTRY_POINTS} must name a "
                f"package that holds *.toml files, found {point.value!r}: {error}"
            ) from error
        found.append((owner(point), folder))
    return tuple(found)


@cache
def packaged_table(file: str) -> Mapping[str, Any]:
    """A TOML file that stands beside this module."""
    return tomllib.loads((importlib.resources.files(__package__) / file).read_text("utf-8"))


def toml_files(folder: Traversable) -> list[Traversable]:
    """The ``*.toml`` files of a folder, by name; none if there is no such folder."""
    files = folder.iterdir() if folder.is_dir() else ()
    return sorted((f for f in files if f.name.endswith(".toml")), key=lambda file: file.name)
