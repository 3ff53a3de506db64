"""Where the data of families lies: beside the package, and in installed packages."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import tomllib
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from mmroute.errors import SpecError
from mmroute.model.files import JsonValue

__all__ = ["ENTRY_POINTS", "spec_files", "why_not_covered"]

ENTRY_POINTS = "mmroute.specs"
"""Entry point group of other packages' specs: each names a package that holds ``*.toml``."""


def spec_files() -> Iterator[Traversable]:
    """The files of all family specs: the shipped ones, then those of installed packages.

    Raises:
        SpecError: an installed package does not hold what it says.
    """
    yield from _toml_files(_shipped())
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            yield from _toml_files(importlib.resources.files(point.value))
        except (ImportError, OSError, TypeError) as error:
            owner = point.dist.name if point.dist else "an installed package"
            raise SpecError(
                f"{owner}: the entry point {point.name!r} of {ENTRY_POINTS} must name a package "
                f"that holds *.toml files, found {point.value!r}: {error}"
            ) from error


def why_not_covered(architectures: JsonValue) -> str | None:
    """Why no spec is possible for a model that the engine serves; None if that is not known.

    Args:
        architectures: of its config.json.
    """
    named = architectures if isinstance(architectures, list) else []
    for file in _toml_files(_shipped() / "not_covered"):
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        if any(name in table["architectures"] for name in named):
            why: str = table["why"]
            return why
    return None


def _shipped() -> Traversable:
    packaged = importlib.resources.files("mmroute") / "model_specs"
    # In a source checkout the specs stand beside the package, and a wheel takes them in.
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "model_specs"


def _toml_files(root: Traversable) -> list[Traversable]:
    files = (file for file in root.iterdir() if file.name.endswith(".toml"))
    return sorted(files, key=lambda file: file.name)
