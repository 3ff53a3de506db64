"""SGLang's form of KV events: vLLM's, without fields that are None, and with signed numbers.

Source: SGLang ``srt/disaggregation/kv_events.py``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from mmroute.engines.events import (
    NO_KEYS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Changes,
    Contents,
    EventBatch,
    StoredHashes,
)
from mmroute.hashing.chain import unpack_ids
from mmroute.hashing.content import encode

_PageHash: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _PagesStored(msgspec.Struct, frozen=True, tag="BlockStored", gc=False):
    """A `BlockStored` of SGLang. Under EAGLE its pages are of pairs: each token and the next."""

    block_hashes: tuple[_PageHash, ...]
    parent_block_hash: _PageHash | None
    token_ids: tuple[int | tuple[int, int], ...]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None
    lora_name: str = ""
    session_id: str | None = None

    def as_event(self) -> BlockStored:
        numbers = tuple(token for token in self.token_ids if isinstance(token, int))
        pairs = [token for token in self.token_ids if not isinstance(token, int)]
        if numbers and pairs:
            raise ValueError("token_ids has numbers and pairs")
        is_salted = self.cache_salt is not None and self.parent_block_hash is None
        later = (None,) * (len(self.block_hashes) - 1)
        ends = pairs[self.block_size - 1 :: self.block_size] if pairs else ()
        return BlockStored(
            block_hashes=self.block_hashes,
            parent_block_hash=self.parent_block_hash,
            token_ids=numbers or tuple(token for token, _ in pairs),
            block_size=self.block_size,
            lora_id=self.lora_id,
            medium=self.medium,
            lora_name=self.lora_name or None,
            # As vLLM tells it: of the first block alone.
            extra_keys=((self.cache_salt,), *later) if is_salted else None,
            session_id=self.session_id,
            lookahead_token_ids=tuple((token,) for _, token in ends) or None,
        )


class _PagesRemoved(BlockRemoved, frozen=True, tag="BlockRemoved", gc=False):
    """A `BlockRemoved` of SGLang."""

    block_hashes: tuple[_PageHash, ...]
    medium: str | None = None

    def as_event(self) -> BlockRemoved:
        return BlockRemoved(*(getattr(self, name) for name in self.__struct_fields__))


class _PageBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ts: float
    events: tuple[_PagesStored | _PagesRemoved | AllBlocksCleared, ...]
    attn_dp_rank: int | None = None

    def as_batch(self) -> EventBatch:
        events = tuple(
            event if isinstance(event, AllBlocksCleared) else event.as_event()
            for event in self.events
        )
        return EventBatch(self.ts, events, self.attn_dp_rank)


class _PagesStoredHashes(StoredHashes, frozen=True, tag="BlockStored", gc=False):
    """The same fields of an event of SGLang."""

    block_hashes: tuple[_PageHash, ...]
    medium: str | None = None
    lora_name: str = ""
    parent_block_hash: _PageHash | None = None
    cache_salt: str | None = None

    def contents(self) -> Contents | None:
        """See `StoredHashes`. The salt is a key of a prompt's first page, as it is vLLM's."""
        if self.lora_id is not None and not self.lora_name:
            return None
        ids, ahead = unpack_ids(self.token_ids), []
        if ids.ndim > 1:  # pairs: each token and the next
            last, ids = ids[self.block_size - 1 :: self.block_size, 1:], ids[:, 0]
            ahead = [*map(encode, last.tolist())]
        keys = [NO_KEYS] * len(self.block_hashes)
        if self.cache_salt and self.parent_block_hash is None:
            keys[0] = encode((self.cache_salt,))
        return Contents.of(ids, keys, self.lora_name or None, ahead)


class PageChanges(Changes, frozen=True, array_like=True, gc=False):
    """The `Changes` of a batch of SGLang."""

    has_pages: ClassVar = True
    events: tuple[_PagesStoredHashes | _PagesRemoved | AllBlocksCleared, ...]


_BATCH: Final = msgspec.msgpack.Decoder(_PageBatch)
_CHANGES: Final = msgspec.msgpack.Decoder(PageChanges)


class SglangEvents:
    """SGLang's form of events."""

    def batch(self, payload: bytes) -> EventBatch:
        return _BATCH.decode(payload).as_batch()

    def changes(self, payload: bytes) -> Changes | EventBatch:
        return _CHANGES.decode(payload)


DECODER: Final = SglangEvents()
