"""Which worker holds which KV cache blocks, by the events that engines publish."""

from mmroute.kv_events.block_index import BlockIndex, WorkerRank
from mmroute.kv_events.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode_events,
)

__all__ = [
    "AllBlocksCleared",
    "BlockIndex",
    "BlockRemoved",
    "BlockStored",
    "EventBatch",
    "WorkerRank",
    "decode_events",
]
