"""What installed packages add to a table of this package, through their entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from mmroute.errors import SpecError


def entry_points(group: str) -> EntryPoints:
    """The entry points of a group, in all packages that were installed when first asked."""
    found: EntryPoints = _of_all_packages().select(group=group)
    return found


def installed(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """The entry points of a group, by name.

    Args:
        group: of entry points.
        taken: names that are this package's own.

    Raises:
        SpecError: two have one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group):
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


@cache
def _of_all_packages() -> Any:  # of one type in Python 3.11 and of another from 3.12 on
    # Asked with a group, Python reads the files of all packages for each group again.
    return importlib.metadata.entry_points()
