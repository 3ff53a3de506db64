"""Where the files of family specs lie: beside the package, and in installed packages."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from mmroute.errors import SpecError

__all__ = ["ENTRY_POINTS", "OWN_PACKAGE", "spec_files"]

OWN_PACKAGE: Final = "mmroute"
ENTRY_POINTS: Final = "mmroute.specs"
"""Entry point group of other packages' specs: each names a package that holds ``*.toml``."""


def spec_files() -> Iterator[tuple[str, Traversable]]:
    """The files of all family specs: the shipped ones, then those of installed packages.

    Yields:
        The name of the package, and the file.

    Raises:
        SpecError: an installed package does not hold what it says.
    """
    packaged = importlib.resources.files("mmroute") / "model_specs"
    # In a source checkout the specs stand beside the package, and a wheel takes them in.
    root = packaged if packaged.is_dir() else Path(__file__).parents[2] / "model_specs"
    yield from ((OWN_PACKAGE, file) for file in _toml_files(root))
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        owner = point.dist.name if point.dist else "an installed package"
        try:
            files = _toml_files(importlib.resources.files(point.value))
        except (ImportError, OSError, TypeError) as error:
            raise SpecError(
                f"{owner}: the entry point {point.name!r} of {ENTRY_POINTS} must name a package "
                f"that holds *.toml files, found {point.value!r}: {error}"
            ) from error
        yield from ((owner, file) for file in files)


def _toml_files(root: Traversable) -> list[Traversable]:
    files = (file for file in root.iterdir() if file.name.endswith(".toml"))
    return sorted(files, key=lambda file: file.name)
