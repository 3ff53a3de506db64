"""What installed packages add to a table of this package, through their entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from importlib.metadata import EntryPoint
from typing import Any

from mmroute.errors import SpecError

__all__ = ["installed", "load", "owner"]


def installed(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """The entry points of a group, by name.

    Args:
        group: of entry points.
        taken: names that are this package's own.

    Raises:
        SpecError: two have one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=group):
        if point.name in taken or point.name in found:
            raise SpecError(f"{owner(point)}: {point.name!r} of {group} is already taken")
        found[point.name] = point
    return found


def load(point: EntryPoint) -> Any:
    """What an entry point names.

    Raises:
        SpecError: it cannot be imported.
    """
    try:
        return point.load()
    except Exception as error:  # code of others: whatever it raises
        raise SpecError(
            f"{owner(point)}: {point.value!r} of {point.group} cannot be imported: {error!r}"
        ) from error


def owner(point: EntryPoint) -> str:
    """The name of the distribution that has an entry point, for messages."""
    return point.dist.name if point.dist else "an installed package"
