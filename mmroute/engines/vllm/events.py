"""vLLM's form of KV events: msgpack of a ``KVEventBatch``.

A hash is in full if VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is 0 (vllm/envs.py), else its low 64 bits.

Source: vLLM ``distributed/kv_events.py``; 0.23.0 and before wrote events as arrays.
"""

from __future__ import annotations

import contextlib
from typing import Final, get_args

import msgspec

from mmroute.engines.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Changes,
    Event,
    EventBatch,
)


class _StoredRow(BlockStored, frozen=True, tag="BlockStored", array_like=True, gc=False):
    """A `BlockStored` as vLLM 0.13 to 0.23 wrote it: fields by position, later ones left out."""


class _RemovedRow(BlockRemoved, frozen=True, tag="BlockRemoved", array_like=True, gc=False):
    """A `BlockRemoved` of the same versions."""


class _ClearedRow(AllBlocksCleared, frozen=True, tag="AllBlocksCleared", array_like=True, gc=False):
    """An `AllBlocksCleared` of the same versions."""


class _RowBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ts: float
    events: tuple[_StoredRow | _RemovedRow | _ClearedRow, ...]
    data_parallel_rank: int | None = None

    def as_batch(self) -> EventBatch:
        events = tuple(map(_of_row, self.events))
        return EventBatch(self.ts, events, self.data_parallel_rank)


def _of_row(row: Event) -> Event:
    kind = next(kind for kind in get_args(Event) if isinstance(row, kind))
    event: Event = kind(*(getattr(row, name) for name in row.__struct_fields__))
    return event


_BATCH: Final = msgspec.msgpack.Decoder(EventBatch)
_CHANGES: Final = msgspec.msgpack.Decoder(Changes)
_ROWS: Final = msgspec.msgpack.Decoder(_RowBatch)


class VllmEvents:
    """vLLM's form of events, and that of its older versions."""

    def batch(self, payload: bytes) -> EventBatch:
        try:
            return _BATCH.decode(payload)
        except (ValueError, RecursionError):
            with contextlib.suppress(ValueError, RecursionError):
                return _ROWS.decode(payload).as_batch()
            raise

    def changes(self, payload: bytes) -> Changes | EventBatch:
        try:
            return _CHANGES.decode(payload)
        except (ValueError, RecursionError):
            return _ROWS.decode(payload).as_batch()


DECODER: Final = VllmEvents()
