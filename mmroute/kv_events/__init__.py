"""Which worker holds which KV cache blocks, by the events that engines publish."""

from typing import TYPE_CHECKING

from mmroute.kv_events.block_index import BlockIndex, WorkerRank
from mmroute.kv_events.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode_events,
)
from mmroute.kv_events.streams import Lost, Received, Restarted, Source

if TYPE_CHECKING:
    from mmroute.kv_events.subscriber import Subscriber

__all__ = [
    "AllBlocksCleared",
    "BlockIndex",
    "BlockRemoved",
    "BlockStored",
    "EventBatch",
    "Lost",
    "Received",
    "Restarted",
    "Source",
    "Subscriber",
    "WorkerRank",
    "decode_events",
]


def __getattr__(name: str) -> object:
    if name != "Subscriber":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mmroute.kv_events.subscriber import Subscriber  # pyzmq, an extra

    return Subscriber
