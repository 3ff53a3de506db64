"""A request on its way: counted, and not yet placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mmroute.geometry import AnyGeometry, TokenIds
from mmroute.items import Items, Modality
from mmroute.placement import Insertion
from mmroute.request import Request

__all__ = ["Prepared"]


class Prepared(NamedTuple):
    """A request whose items are counted, and not yet placed.

    Attributes:
        request: with what the engine's settings put into it.
        ids: the un-expanded prompt, shape (n,).
        items: by modality, in the order of the request.
        geometries: of the same modalities, under the request's overrides.
        insertions: what takes each item's place, modality by modality.
    """

    request: Request
    ids: TokenIds
    items: Items
    geometries: Mapping[Modality, AnyGeometry]
    insertions: Sequence[Insertion]
