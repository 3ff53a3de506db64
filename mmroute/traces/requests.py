"""What a trace holds of each request: what routers can look up, and what workers keep."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from pydantic import BaseModel, ValidationError

from mmroute.errors import InexactError, invalid, problem
from mmroute.hashing import BlockHashes, hash_blocks
from mmroute.items import Modality
from mmroute.request import Request
from mmroute.request_lines import json_object, request_of
from mmroute.routing import Routing

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Hashes", "Read", "TracedRequest", "comparable_hashes", "read_trace"]

Hashes: TypeAlias = "npt.NDArray[np.uint64]"

_CHUNK: Final = 256  # characters that a router of texts compares at once
_MOONCAKE_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request, by hashes.

    Attributes:
        hashes: of the full blocks, as the engine's events have them, shape (n,).
        id_hashes: the same without the identities of items: token IDs alone.
        chunks: chained hashes of the request's text, 256 characters each; empty if there is none.
        num_tokens: of the prompt.
        session: a number of the line's `session_id`; without one, of its first 256 characters.
        items: the identities of its items.
    """

    hashes: Hashes
    id_hashes: Hashes
    chunks: tuple[int, ...]
    num_tokens: int
    session: int
    items: tuple[str, ...] = ()


@dataclass(slots=True)
class Read:
    """What was read of a trace so far.

    Attributes:
        requests: lines with an exact answer.
        refused: the other lines, by reason.
        items: how many items, by modality.
        block_size: tokens under one hash; 0 before the first request.
    """

    requests: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    items: Counter[Modality] = field(default_factory=Counter)
    block_size: int = 0


class _MooncakeLine(BaseModel):
    """A line of Mooncake's public traces: blocks of 512 tokens by number, and no text."""

    input_length: int
    hash_ids: list[int]


def read_trace(
    lines: Iterable[bytes],
    answer_of: Callable[[Request], Routing] | None,
    read: Read,
    *,
    block_size: int | None = None,
) -> Iterator[TracedRequest]:
    """The requests of a trace; a line without an exact answer is counted and left out.

    Args:
        lines: request lines, or lines of Mooncake's format.
        answer_of: gives exact answers; None for a trace of Mooncake's format.
        read: counts what was read.
        block_size: the engine's, in tokens; None for its default.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            value = json_object(line)
            if "hash_ids" in value:
                request = _of_mooncake(value)
                read.block_size = _MOONCAKE_BLOCK
            elif answer_of is None:
                raise invalid("a request line needs a model; lines with hash_ids do not")
            else:
                routing = answer_of(request_of(value))
                request = _of_routing(value, routing, block_size)
                read.items.update(p.modality for p in routing.placeholders)
                read.block_size = block_size or routing.hashing.block_size or 0
        except InexactError as error:
            read.refused[error.reason] += 1
            continue
        read.requests += 1
        yield request


def _of_mooncake(value: dict[str, Any]) -> TracedRequest:
    try:
        line = _MooncakeLine.model_validate(value)
    except ValidationError as error:
        raise invalid("; ".join(map(problem, error.errors()))) from error
    # The last of the numbers stands for a block that may not be full.
    full = np.array(line.hash_ids[: line.input_length // _MOONCAKE_BLOCK], dtype=np.uint64)
    session = int(full[0]) if len(full) else 0
    return TracedRequest(full, full, (), line.input_length, session)


def _of_routing(value: dict[str, Any], routing: Routing, block_size: int | None) -> TracedRequest:
    hashes = comparable_hashes(routing, block_size)
    found = by_ids = np.array(hashes.event_ints(), dtype=np.uint64)
    if routing.items:
        ids = hash_blocks(
            routing.token_ids,
            algorithm=hashes.algorithm,
            block_size=hashes.block_size,
            seed=hashes.seed,
        )
        by_ids = np.array(ids.event_ints(), dtype=np.uint64)
    chunks = tuple(_chunks(value))
    session = value.get("session_id", chunks[0] if chunks else 0)
    return TracedRequest(
        hashes=found,
        id_hashes=by_ids,
        chunks=chunks,
        num_tokens=len(routing.token_ids),
        session=zlib.crc32(str(session).encode()),
        items=tuple([identity.value for _, identity in routing.identified()]),
    )


def comparable_hashes(routing: Routing, block_size: int | None) -> BlockHashes:
    """The block hashes of a request, to be compared with those of others.

    Args:
        routing: the answer to it.
        block_size: the engine's, in tokens; None for its default.

    Raises:
        InexactError: as `Routing.block_hashes`.
    """
    # Some algorithms need a seed. Any one will do where the engine's is not known.
    return routing.block_hashes(block_size=block_size, seed=routing.hashing.seed or "0")


def _chunks(value: dict[str, Any]) -> Iterator[int]:
    """Chained hashes of the text that a router sees without a tokenizer."""
    text = "".join(_texts(value.get("messages") or value.get("prompt") or ""))
    chained = 0
    for start in range(0, len(text), _CHUNK):
        chained = zlib.crc32(text[start : start + _CHUNK].encode(errors="replace"), chained)
        yield chained


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key in ("role", "content", "text"):
            yield from _texts(value.get(key))
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)
