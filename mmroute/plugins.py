"""The entries that other packages add to tables of this package, through entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from mmroute.errors import SpecError


def entry_points(group: str) -> EntryPoints:
    """The entry points of a group, in all packages that were installed at the first call."""
    points: EntryPoints = _of_all_packages().select(group=group)
    return points


def installed(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """The entry points of a group, by name.

    Args:
        group: the group of entry points.
        taken: the names of this package's own entries.

    Raises:
        SpecError: two entries have one name.
    """
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group):
        if point.name in taken or point.name in points:
            raise SpecError(f"{owner(point)}: {point.name!r} of {group} is already taken")
        points[point.name] = point
    return points


def load(point: EntryPoint) -> Any:
    """Import the object that an entry point names.

    Raises:
        SpecError: the object cannot be imported.
    """
    try:
        return point.load()
    except Exception as error:  # another package's code may raise any type
        raise SpecError(
            f"{owner(point)}: {point.value!r} of {point.group} cannot be imported: {error!r}"
        ) from error


def owner(point: EntryPoint) -> str:
    """The name of the distribution that has an entry point, for messages."""
    return point.dist.name if point.dist else "an installed package"


@cache
def _of_all_packages() -> Any:  # of one type in Python 3.11 and of another from 3.12 on
    # Called with a group, Python reads the files of all packages again for each group.
    return importlib.metadata.entry_points()
