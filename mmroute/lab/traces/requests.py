"""The requests of a trace, reduced to what routers look up and workers cache."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from pydantic import BaseModel, NonNegativeInt, ValidationError

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, invalid, problem
from mmroute.hashing import Algorithm, BlockHashes, hash_blocks
from mmroute.kv_events.policy import prompt_items
from mmroute.requests.lines import json_object, request_of
from mmroute.requests.request import Request

_TEXT_CHUNK: Final = 256  # characters that a text-based router compares at once
_MOONCAKE_BLOCK: Final = 512
_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?])\s+|\n+|(?<=[\u3002\uff01\uff1f])"
)  # and full-width ones
_NO_SEED: Final = "not set"
_MIN_PIECE: Final = 24  # characters; many requests have the same shorter sentences
_CHARACTERS_PER_TOKEN: Final = 4
_WORD: Final = (1 << 64) - 1
_LINE_FIELDS: Final = {"session_id", "timestamp", "output_length"}  # not fields of a request


class TracedItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An image, video or audio of a request.

    Attributes:
        identity: 32 bits of the item's identity.
        end: the position after its placeholder range.
        features: the number of positions that receive features.
    """

    identity: int
    end: int
    features: int


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sentence, an item or a tool, at any place in a request.

    Attributes:
        key: 32 bits of the piece's hash.
        tokens: the estimated number of its tokens.
    """

    key: int
    tokens: int


class TracedRequest(msgspec.Struct, frozen=True, array_like=True):
    """One request, reduced to hashes.

    Attributes:
        line: the line number in the trace, from 1.
        num_tokens: the number of tokens in the prompt.
        hashes: the hashes of the full blocks, as in the engine's events.
        id_hashes: the hashes of the same blocks over token IDs alone; empty if there is no item.
        text: the chained hashes of the text that a router without a tokenizer sees, each over
            256 more characters.
        pieces: the sentences, items and tools in their order; empty if there is no text.
        session: a hash of the line's `session_id`, or of the user's first message if it has none.
        items: the items in their order.
        output_length: the number of tokens in the output; 0 if the trace does not have it.
        timestamp: the time in milliseconds; None if the trace does not have it.
        cost: the processor time that mmroute took, in microseconds.
        reads_cache: whether the engine looks the prompt up in its prefix cache.
    """

    line: int
    num_tokens: int
    hashes: list[int]
    id_hashes: list[int] = []
    text: list[int] = []
    pieces: list[Piece] = []
    session: int = 0
    items: list[TracedItem] = []
    output_length: int = 0
    timestamp: float | None = None
    cost: int = 0
    reads_cache: bool = True

    def most_cached(self, block_size: int) -> int:
        """The number of blocks that the engine may take from its cache; not the last token."""
        return max(0, self.num_tokens - 1) // block_size if self.reads_cache else 0


class Chunk(msgspec.Struct):
    """Some lines of a trace.

    Attributes:
        requests: the requests with an exact answer.
        refused: the reason, line number and message of each other request.
        items: the number of items, by modality.
        block_size: the number of tokens under one hash; 0 if there is no request.
    """

    requests: list[TracedRequest] = []
    refused: list[tuple[str, int, str]] = []
    items: dict[str, int] = {}
    block_size: int = 0


class _Line(BaseModel):
    timestamp: float | None = None
    output_length: NonNegativeInt = 0


class _MooncakeLine(_Line):
    """A line of Mooncake's public traces, which has the numbers of blocks of 512 tokens."""

    input_length: NonNegativeInt
    hash_ids: list[NonNegativeInt]


def read_chunk(
    lines: Iterable[tuple[int, bytes]],
    answer_of: Callable[[Request], Routing] | None,
    block_size: int | None = None,
) -> Chunk:
    """Answer some lines of a trace. A line without an exact answer is kept with its reason."""
    chunk = Chunk()
    for number, line in lines:
        try:
            value = json_object(line)
            if answer_of is not None:
                if "hash_ids" in value:
                    raise invalid("a line with hash_ids must be read without --model")
                _answer(number, value, answer_of, block_size, chunk)
            elif "hash_ids" in value:
                chunk.requests.append(_mooncake_request(number, value))
                chunk.block_size = _MOONCAKE_BLOCK
            else:
                raise invalid("a request line needs --model; a line with hash_ids does not")
        except InexactError as error:
            chunk.refused.append((error.reason.value, number, str(error)))
    return chunk


def comparable_hashes(routing: Routing, block_size: int | None) -> BlockHashes:
    """The block hashes of a request, to be compared only with each other."""
    # Some algorithms need a seed. If the engine's is not known, one serves that no engine can have.
    seed = routing.hashing.settings.seed
    return routing.block_hashes(block_size=block_size, seed=_NO_SEED if seed is None else seed)


def _checked(model: type[BaseModel], value: dict[str, Any]) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid("; ".join(map(problem, error.errors()))) from error


def _mooncake_request(number: int, value: dict[str, Any]) -> TracedRequest:
    line: _MooncakeLine = _checked(_MooncakeLine, value)
    if any(key > _WORD for key in line.hash_ids):
        raise invalid(f"hash_ids must be below 2**64, found {max(line.hash_ids)}")
    # The last number may stand for a block that is not full.
    full = line.hash_ids[: line.input_length // _MOONCAKE_BLOCK]
    return TracedRequest(
        line=number,
        num_tokens=line.input_length,
        hashes=full,
        output_length=line.output_length,
        timestamp=line.timestamp,
    )


def _answer(
    number: int,
    value: dict[str, Any],
    answer_of: Callable[[Request], Routing],
    block_size: int | None,
    chunk: Chunk,
) -> None:
    line: _Line = _checked(_Line, value)
    fields = {name: each for name, each in value.items() if name not in _LINE_FIELDS}
    started = time.thread_time_ns()
    routing = answer_of(request_of(fields))
    hashes = comparable_hashes(routing, block_size)
    cost = (time.thread_time_ns() - started) // 1000
    by_ids: list[int] = []
    if routing.items:
        # These hashes are compared only with each other, so the cheapest algorithm serves.
        by_ids = hash_blocks(
            routing.token_ids, algorithm=Algorithm.XXHASH, block_size=hashes.block_size, seed="0"
        ).event_ints()
    items = []
    for item, placeholder in zip(prompt_items(routing), routing.placeholders, strict=True):
        items.append(TracedItem(zlib.crc32(item.identity.encode()), item.end, item.features))
        modality = placeholder.modality.value
        chunk.items[modality] = chunk.items.get(modality, 0) + 1
    text, pieces = _texts_and_pieces(value, items)
    session = value.get("session_id", _beginning(value))
    chunk.block_size = hashes.block_size
    chunk.requests.append(
        TracedRequest(
            line=number,
            num_tokens=len(routing.token_ids),
            hashes=hashes.event_ints(),
            id_hashes=by_ids,
            text=text,
            pieces=pieces,
            session=zlib.crc32(str(session).encode()),
            items=items,
            output_length=line.output_length,
            timestamp=line.timestamp,
            cost=cost,
            reads_cache=routing.reads_cache,
        )
    )


def _texts_and_pieces(
    value: dict[str, Any], items: list[TracedItem]
) -> tuple[list[int], list[Piece]]:
    waiting = iter(items)
    texts: list[str] = []
    pieces = [_piece(json.dumps(tool)) for tool in value.get("tools") or ()]
    for part in _parts(value.get("messages") or value.get("prompt") or ""):
        if part is not None:
            texts.append(part)
            sentences = _SENTENCE_END.split(part)
            pieces += [_piece(each) for each in sentences if len(each) >= _MIN_PIECE]
        elif (item := next(waiting, None)) is not None:
            pieces.append(Piece(item.identity, item.features))
    pieces += [Piece(item.identity, item.features) for item in waiting]
    return list(_chunks("".join(texts))), pieces


def _beginning(value: dict[str, Any]) -> str:
    """The beginning of a conversation, by which its turns are recognized."""
    messages = value.get("messages") or ()
    from_user = (each for each in messages if isinstance(each, dict) and each.get("role") == "user")
    prompt = str(value.get("prompt") or "")[:_TEXT_CHUNK]
    return "".join(filter(None, _parts(next(from_user, prompt))))


def _piece(text: str) -> Piece:
    return Piece(zlib.crc32(text.encode(errors="replace")), len(text) // _CHARACTERS_PER_TOKEN)


def _chunks(text: str) -> Iterator[int]:
    """The chained hashes of a text in chunks of 256 characters."""
    chained = 0
    for start in range(0, len(text), _TEXT_CHUNK):
        chained = zlib.crc32(text[start : start + _TEXT_CHUNK].encode(errors="replace"), chained)
        yield chained


def _parts(value: object) -> Iterator[str | None]:
    """The texts of messages in their order, with None for each item."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if "type" in value and "text" not in value:
            yield None
        for key in ("role", "content", "text"):
            yield from _parts(value.get(key))
    elif isinstance(value, Sequence):
        for each in value:
            yield from _parts(each)
