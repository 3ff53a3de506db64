"""The form of a snapshot of an index of blocks: msgpack."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mmroute.kv_events.groups import Group
from mmroute.kv_events.holders import MAX_SLOTS


class SavedRank(msgspec.Struct, frozen=True, array_like=True):
    """A rank, and how far its events were entered."""

    worker: str
    data_parallel_rank: int
    slot: Annotated[int, msgspec.Meta(ge=0, lt=MAX_SLOTS)]
    topic: str | None
    position: tuple[int, float] | None
    groups: dict[int | None, Group] = {}


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All blocks of an index."""

    kind: Literal["mmroute index 1"]
    ranks: tuple[SavedRank, ...]
    tables: tuple[tuple[int | None, str | None, str | None, bytes], ...]
    has_pages: bool = False
