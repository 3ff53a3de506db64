"""What installed packages add to a table of this package, through their entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import TypeVar

from mmroute.errors import SpecError

__all__ = ["with_installed"]

Entry = TypeVar("Entry")


def with_installed(own: Mapping[str, Entry], group: str) -> Mapping[str, Entry]:
    """A table, and what the entry points of a group add to it.

    Raises:
        SpecError: one cannot be imported, or two have one name.
    """
    table = dict(own)
    for point in importlib.metadata.entry_points(group=group):
        owner = point.dist.name if point.dist else "an installed package"
        if point.name in table:
            raise SpecError(f"{owner}: {point.name!r} of {group} is already taken")
        try:
            table[point.name] = point.load()
        except Exception as error:  # code of others: whatever it raises
            raise SpecError(
                f"{owner}: {point.value!r} of {group} cannot be imported: {error!r}"
            ) from error
    return table
