"""The KV events of engines, in one form: which blocks were stored and removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    TypeAlias,
)

import msgspec
import numpy as np

from mmroute.errors import EventsError, Reason
from mmroute.hashing.chain import unpack_ids
from mmroute.hashing.content import content_keys, encode
from mmroute.plugins import Registry

if TYPE_CHECKING:
    import numpy.typing as npt

BlockHash: TypeAlias = bytes | Annotated[int, msgspec.Meta(ge=0)]
"""In full, or as a number of 64 bits. Some engines have such a number with a sign."""

NO_KEYS: Final = b"\xc0"
"""The msgpack of a block without extra keys: None."""
_NOTHING: Final = msgspec.Raw()
_ARRAY_16: Final = 0xDC  # the first of three bytes before 16 entries or more of msgpack
_ENTRIES: Final = msgspec.msgpack.Decoder(list[msgspec.Raw] | None)
_MESSAGE_LENGTH: Final = 300  # an unknown event type is as long as its sender likes


def split(array: msgspec.Raw) -> list[bytes]:
    """The msgpack of each entry of an array; none of None, or of a field that is not there."""
    return [*map(bytes, _ENTRIES.decode(array) or ())] if bytes(array) else []


class Contents(NamedTuple):
    """What the hashes of blocks cover: the arguments of `content_keys`."""

    token_ids: npt.NDArray[Any]
    extra: Mapping[int, bytes]
    lora_name: str | None

    @classmethod
    def of(
        cls,
        token_ids: npt.NDArray[Any],
        keys: Iterable[bytes],
        lora_name: str | None,
        ahead: Sequence[bytes] = (),
    ) -> Contents:
        """Those of blocks with these extra keys and lookahead tokens, each as msgpack."""
        covered = map(b"".join, zip(keys, ahead, strict=True)) if ahead else keys
        plain = None if lora_name else NO_KEYS
        return cls(token_ids, {at: k for at, k in enumerate(covered) if k != plain}, lora_name)

    def keys(self, block_size: int, parent: int | None = None) -> tuple[int, ...]:
        """The keys of the blocks; see `content_keys`."""
        extra, lora_name = self.extra, self.lora_name
        return content_keys(
            self.token_ids, block_size, extra=extra, lora_name=lora_name, parent=parent
        )


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

    def contents(self) -> Contents | None:
        """What the blocks hold; None if the event may not tell all that their hashes cover."""
        if not self.extra_keys or (self.lora_id is not None and not self.lora_name):
            return None
        if len(self.extra_keys) != len(self.block_hashes):
            return None
        ids, ahead = np.array(self.token_ids, np.int64), self.lookahead_token_ids or ()
        return Contents.of(ids, map(encode, self.extra_keys), self.lora_name, [*map(encode, ahead)])


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
        """Whether a hash is a negative number: the first 64 bits of a longer one."""
        return any(
            isinstance(block_hash, int) and block_hash < 0
            for event in self.events
            if isinstance(event, BlockStored)
            for block_hash in event.block_hashes
        )


class StoredHashes(msgspec.Struct, frozen=True, tag="BlockStored", gc=False):
    """The fields of a `BlockStored` that indexes need, read in a third of the time of all.

    What only an index by content needs is left as msgpack.
    """

    block_hashes: tuple[BlockHash, ...]
    block_size: int
    medium: str | None
    lora_name: str | None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    ownership: str | None = None
    parent_block_hash: BlockHash | None = None
    token_ids: msgspec.Raw = _NOTHING
    lora_id: int | None = None
    extra_keys: msgspec.Raw = _NOTHING
    lookahead_token_ids: msgspec.Raw = _NOTHING

    def contents(self) -> Contents | None:
        """As `BlockStored.contents`. Raises ValueError for fields of another form."""
        keys = bytes(self.extra_keys)
        if keys in (b"", NO_KEYS) or (self.lora_id is not None and not self.lora_name):
            return None
        ids, ahead = unpack_ids(self.token_ids), split(self.lookahead_token_ids)
        count, header = len(self.block_hashes), 1 if keys[0] < _ARRAY_16 else 3
        if not ahead and not self.lora_name and keys[header:] == NO_KEYS * count:
            return Contents(ids, {}, None)
        each = split(self.extra_keys)
        return Contents.of(ids, each, self.lora_name, ahead) if len(each) == count else None


class Changes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `EventBatch` without the fields that the index does not need."""

    has_pages: ClassVar = False
    ts: float
    events: tuple[StoredHashes | BlockRemoved | AllBlocksCleared, ...]
    data_parallel_rank: int | None = None


class Decoder(Protocol):
    """An engine's form of events. What is of another form raises ValueError or RecursionError."""

    def batch(self, payload: bytes) -> EventBatch:
        """The batch in one payload; fields that the engine does not have are ignored."""

    def changes(self, payload: bytes) -> Changes | EventBatch:
        """The batch without the fields that the index does not need."""


DECODERS: Final = Registry(
    "decoder of events",
    "mmroute.engines",
    {"vllm": "vllm.events:DECODER", "sglang": "sglang.events:DECODER"},
    "mmroute.events",
)
"""The forms of events: name of the engine -> its `Decoder`."""


@cache
def _decoders() -> Sequence[Decoder]:
    return [DECODERS.find(name) for name in DECODERS.entries]


def decode_events(payload: bytes) -> EventBatch:
    """The batch in one payload; fields that the engine does not have are ignored.

    Raises:
        EventsError: `malformed_events`: the payload is no batch, or has an event of unknown type.
            The message says what was found where.
    """
    first, *others = _decoders()
    try:
        return first.batch(payload)
    except (ValueError, RecursionError) as error:  # an unknown field may be nested to any depth
        for other in others:
            with contextlib.suppress(ValueError, RecursionError):
                return other.batch(payload)
        known = " or ".join(DECODERS.entries)
        message = f"{len(payload)} bytes are no KV event batch of {known}: {error}"
        raise EventsError(Reason.MALFORMED_EVENTS, message[:_MESSAGE_LENGTH]) from error


def decode_changes(payload: bytes) -> Changes | EventBatch:
    """The batch in one payload, without the fields that the index does not need."""
    for decoder in _decoders():
        with contextlib.suppress(ValueError, RecursionError):
            return decoder.changes(payload)
    return decode_events(payload)
