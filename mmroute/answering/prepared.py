"""The intermediate result of a request: its items are counted, and not yet placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mmroute.placement import Insertion
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.geometry import Geometry

Geometries: TypeAlias = "Mapping[Modality, Geometry]"
"""The geometry of each modality of a request."""

Sizes: TypeAlias = Mapping[Modality, Sequence[Any]]
"""The numbers of each item of a request, by modality."""


class Prepared(NamedTuple):
    """A request whose items are counted, and not yet placed."""

    request: Request  # the request, with the defaults from the engine's settings
    ids: TokenIds  # the un-expanded prompt, shape (n,)
    items: Items  # the items by modality, in the order of the request
    geometries: Geometries  # the geometries of the same modalities, under the request's overrides
    sizes: Sizes  # the numbers of each of these items, likewise
    insertions: Sequence[Insertion]  # the replacement of each item, modality by modality
