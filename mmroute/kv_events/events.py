"""The KV events of vLLM and SGLang: which blocks were stored and removed.

`decode_events` reads what an engine's ZMQ publisher sends as the last frame of a message: msgpack
of a ``KVEventBatch``. Source: vLLM ``distributed/kv_events.py``; 0.23.0 and before wrote
events as arrays. SGLang ``srt/disaggregation/kv_events.py`` leaves out fields that are None.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, ClassVar, Final, TypeAlias, get_args

import msgspec

from mmroute.errors import EventsError, Reason

BlockHash: TypeAlias = bytes | Annotated[int, msgspec.Meta(ge=0)]
"""In full, if VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is 0, else its low 64 bits (vllm/envs.py).

SGLang's hash is its first 64 bits, as a signed number.
"""
_PageHash: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

_MESSAGE_LENGTH: Final = 300  # an unknown event type is as long as its sender likes


class BlockStored(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Blocks became available in one medium, for one KV cache group.

    Attributes:
        block_hashes: one per block, in the order of the prompt; some may be left out.
        parent_block_hash: the hash of the block before; None at the start of a prompt, or if it is
            not known.
        token_ids: routing token IDs from the first block to the last; empty if not known.
        block_size: tokens in one block; 0 if not known.
        lora_id: deprecated by vLLM in favour of `lora_name`.
        medium: ``GPU``, ``CPU``, ``STORAGE`` or a connector's own word.
        lora_name: the adapter the blocks were computed with.
        extra_keys: for each block, what was hashed beside its tokens: LoRA name, images as
            ``[identity, offset]``, cache salt, digests of prompt embeddings, without their tags.
        group_idx: the KV cache group.
        kv_cache_spec_kind: its kind of attention.
        kv_cache_spec_sliding_window: its window, if it has one.
        locality: ``LOCAL`` or ``REMOTE``, as the publisher sees it.
        ownership: the secondary tier that holds the blocks.
        session_id: the session of the request that caused the event.
        lookahead_token_ids: for each block, the tokens after it that its hash covers too.
    """

    block_hashes: tuple[BlockHash, ...]
    parent_block_hash: BlockHash | None
    token_ids: tuple[int, ...]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: tuple[tuple[Any, ...] | None, ...] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: tuple[tuple[int, ...], ...] | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One copy of each of these blocks is gone. The fields are those of `BlockStored`."""

    block_hashes: tuple[BlockHash, ...]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A cache was reset. The event does not say of which medium."""


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
"""One event."""


class EventBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events of one scheduler step.

    Attributes:
        ts: when the batch was made, in seconds since the epoch, by the worker's clock.
        events: the events, in the order in which they happened.
        data_parallel_rank: the rank whose cache it was. The publishers always set it.
    """

    ts: float
    events: tuple[Event, ...]
    data_parallel_rank: int | None = None

    @property
    def has_pages(self) -> bool:
        """Whether a hash is a negative number, as SGLang's are and vLLM's never."""
        return any(
            isinstance(block_hash, int) and block_hash < 0
            for event in self.events
            if isinstance(event, BlockStored)
            for block_hash in event.block_hashes
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


class StoredHashes(msgspec.Struct, frozen=True, tag="BlockStored", gc=False):
    """The fields of a `BlockStored` that the index needs. All fields take three times as long.

    It also has the one that tells vLLM's events, where it may be None, from SGLang's.
    """

    block_hashes: tuple[BlockHash, ...]
    block_size: int
    medium: str | None
    lora_name: str | None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    ownership: str | None = None


class Changes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `EventBatch` without the fields that the index does not need."""

    has_pages: ClassVar = False
    ts: float
    events: tuple[StoredHashes | BlockRemoved | AllBlocksCleared, ...]
    data_parallel_rank: int | None = None


class _PagesStored(msgspec.Struct, frozen=True, tag="BlockStored", gc=False):
    """A `BlockStored` of SGLang. Under EAGLE its pages are of pairs: each token and the next."""

    block_hashes: tuple[_PageHash, ...]
    parent_block_hash: _PageHash | None
    token_ids: tuple[int | tuple[int, int], ...]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    lora_name: str = ""
    session_id: str | None = None

    def as_event(self) -> BlockStored:
        numbers = tuple(token for token in self.token_ids if isinstance(token, int))
        pairs = [token for token in self.token_ids if not isinstance(token, int)]
        if numbers and pairs:
            raise ValueError("token_ids has numbers and pairs")
        ends = pairs[self.block_size - 1 :: self.block_size] if pairs else ()
        return BlockStored(
            block_hashes=self.block_hashes,
            parent_block_hash=self.parent_block_hash,
            token_ids=numbers or tuple(token for token, _ in pairs),
            block_size=self.block_size,
            lora_id=self.lora_id,
            medium=self.medium,
            lora_name=self.lora_name or None,
            session_id=self.session_id,
            lookahead_token_ids=tuple((token,) for _, token in ends) or None,
        )


class _PagesRemoved(BlockRemoved, frozen=True, tag="BlockRemoved", gc=False):
    """A `BlockRemoved` of SGLang."""

    block_hashes: tuple[_PageHash, ...]
    medium: str | None = None


class _PageBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ts: float
    events: tuple[_PagesStored | _PagesRemoved | AllBlocksCleared, ...]
    attn_dp_rank: int | None = None

    def as_batch(self) -> EventBatch:
        events = tuple(
            event.as_event() if isinstance(event, _PagesStored) else _of_row(event)
            for event in self.events
        )
        return EventBatch(self.ts, events, self.attn_dp_rank)


class _PagesStoredHashes(StoredHashes, frozen=True, tag="BlockStored", gc=False):
    """The same fields of an event of SGLang."""

    block_hashes: tuple[_PageHash, ...]
    medium: str | None = None
    lora_name: str = ""


class PageChanges(Changes, frozen=True, array_like=True, gc=False):
    """The `Changes` of a batch of SGLang."""

    has_pages: ClassVar = True
    events: tuple[_PagesStoredHashes | _PagesRemoved | AllBlocksCleared, ...]


_DECODER: Final = msgspec.msgpack.Decoder(EventBatch)
_CHANGES_DECODER: Final = msgspec.msgpack.Decoder(Changes)
_PAGE_DECODER: Final = msgspec.msgpack.Decoder(_PageBatch)
_PAGE_CHANGES_DECODER: Final = msgspec.msgpack.Decoder(PageChanges)
_ROW_DECODER: Final = msgspec.msgpack.Decoder(_RowBatch)


def decode_events(payload: bytes) -> EventBatch:
    """The batch in one payload; fields that the engine does not have are ignored.

    Raises:
        EventsError: `malformed_events`: the payload is no batch, or has an event of unknown type.
            The message says what was found where.
    """
    try:
        return _DECODER.decode(payload)
    except (ValueError, RecursionError) as error:  # an unknown field may be nested to any depth
        for other in (_PAGE_DECODER, _ROW_DECODER):
            with contextlib.suppress(ValueError, RecursionError):
                return other.decode(payload).as_batch()
        message = f"{len(payload)} bytes are no KV event batch of vLLM or SGLang: {error}"
        raise EventsError(Reason.MALFORMED_EVENTS, message[:_MESSAGE_LENGTH]) from error


def decode_changes(payload: bytes) -> Changes | EventBatch:
    """The batch in one payload, without the fields that the index does not need.

    Raises:
        EventsError: as `decode_events`.
    """
    try:
        return _CHANGES_DECODER.decode(payload)
    except (ValueError, RecursionError):
        with contextlib.suppress(ValueError, RecursionError):
            return _PAGE_CHANGES_DECODER.decode(payload)
        return decode_events(payload)
