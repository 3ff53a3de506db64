"""Which worker holds which KV cache blocks, by the events that engines publish."""

from typing import TYPE_CHECKING

from mmroute.engines.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode_events,
)
from mmroute.kv_events.block_index import BlockIndex, Residency
from mmroute.kv_events.differences import Watched
from mmroute.kv_events.health import Health, SubscriberState, WorkerHealth
from mmroute.kv_events.ranks import WorkerRank
from mmroute.kv_events.streams import Lost, Position, Received, Restarted, Source
from mmroute.kv_events.watch import Outcome, State, Watch, WatchedState
from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.kv_events.subscriber import Subscriber

__all__ = [
    "AllBlocksCleared", "BlockIndex", "BlockRemoved", "BlockStored", "EventBatch", "Health", "Lost",
    "Outcome", "Position", "Received", "Residency", "Restarted", "Source", "State", "Subscriber",
    "SubscriberState", "Watch", "Watched", "WatchedState", "WorkerHealth", "WorkerRank",
    "decode_events",
]  # fmt: skip


__getattr__ = lazily(__name__, {"Subscriber": "mmroute.kv_events.subscriber"})  # pyzmq, an extra
