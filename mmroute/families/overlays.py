"""Merges nested tables: an engine's over a family's, or a request's over a server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested tables. The values of `above` win, key by key."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            result[key] = overlaid(under, value)
        else:
            result[key] = value
    return result
