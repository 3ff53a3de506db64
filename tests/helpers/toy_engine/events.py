"""The toy's KV events: a JSON object with the pages that were stored and removed, as hex."""

import msgspec

from mmroute.kv_events import BlockRemoved, BlockStored, EventBatch


class _Pages(msgspec.Struct, forbid_unknown_fields=True):
    toy_time: float
    page_size: int
    stored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class ToyEvents:
    def batch(self, payload: bytes) -> EventBatch:
        pages = msgspec.json.decode(payload, type=_Pages)
        stored = tuple(map(bytes.fromhex, pages.stored))
        removed = tuple(map(bytes.fromhex, pages.removed))
        events = (
            BlockStored(stored, None, (), pages.page_size, None, "GPU", None),
            BlockRemoved(removed, "GPU"),
        )
        return EventBatch(pages.toy_time, events)

    changes = batch


DECODER = ToyEvents()
