"""The lines of a trace, and its requests as far as workers cache and share them."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, invalid, quoted
from mmroute.hashing import BlockHashes
from mmroute.requests.lines import json_object, numbered, request_of
from mmroute.requests.request import Request

AnswerOf: TypeAlias = Callable[[Request], Routing]

_NO_SEED: Final = "not set"
_PROMPT_BEGINNING: Final = 256  # characters by which the turns of a text prompt are recognized
_LINE_FIELDS: Final = {"session_id", "timestamp", "output_length"}  # not fields of a request


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request, reduced to hashes."""

    num_tokens: int  # the number of tokens in the prompt
    hashes: array[int]  # the hashes of the full blocks, as in the engine's events
    # A hash of the line's `session_id`, or of the user's first message if it has none.
    session: int = 0
    output_length: int = 0  # the number of tokens in the output; 0 if the trace does not have it
    reads_cache: bool = True  # whether the engine looks the prompt up in its prefix cache

    def most_cached(self, block_size: int) -> int:
        """The number of blocks that the engine may take from its cache; not the last token."""
        return max(0, self.num_tokens - 1) // block_size if self.reads_cache else 0


@dataclass(slots=True)
class Chunk:
    """Some lines of a trace."""

    requests: list[TracedRequest] = field(default_factory=list)  # the requests with an exact answer
    # The reason and the line number of each other request.
    refused: list[tuple[str, int]] = field(default_factory=list)
    items: Counter[str] = field(default_factory=Counter)  # the number of items, by modality
    block_size: int = 0  # the number of tokens under one hash; 0 if there is no request


def read_chunk(
    lines: Iterable[tuple[int, bytes]], answer_of: AnswerOf, block_size: int | None = None
) -> Chunk:
    """Answer some lines of a trace. A line without an exact answer is kept with its reason."""
    chunk = Chunk()
    for number, line in lines:
        try:
            _answer(json_object(line), answer_of, block_size, chunk)
        except InexactError as error:
            chunk.refused.append((error.reason.value, number))
    return chunk


def comparable_hashes(routing: Routing, block_size: int | None = None) -> BlockHashes:
    """The block hashes of a request, to be compared only with each other."""
    # Some algorithms need a seed. If the engine's is not known, one serves that no engine can have.
    seed = routing.hashing.settings.seed
    return routing.block_hashes(block_size=block_size, seed=_NO_SEED if seed is None else seed)


def _answer(
    value: dict[str, Any], answer_of: AnswerOf, block_size: int | None, chunk: Chunk
) -> None:
    output = value.get("output_length") or 0
    if not isinstance(output, int) or output < 0:
        raise invalid(f"output_length must be a number of tokens, found {quoted(output)}")
    request = request_of({name: each for name, each in value.items() if name not in _LINE_FIELDS})
    routing = answer_of(request)
    hashes = comparable_hashes(routing, block_size)
    session = str(value.get("session_id", _beginning(value)))
    chunk.items.update(placeholder.modality.value for placeholder in routing.placeholders)
    chunk.block_size = hashes.block_size
    chunk.requests.append(
        TracedRequest(
            num_tokens=len(routing.token_ids),
            hashes=array("Q", hashes.event_ints()),
            session=zlib.crc32(session.encode(errors="replace")),
            output_length=output,
            reads_cache=routing.reads_cache,
        )
    )


def _beginning(value: dict[str, Any]) -> str:
    """The user's first message, by which the turns of a conversation are recognized."""
    for message in value.get("messages") or ():
        if isinstance(message, dict) and message.get("role") == "user":
            return json.dumps(message)
    return str(value.get("prompt") or "")[:_PROMPT_BEGINNING]


def numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    with Path(path).open("rb") as file:
        yield from numbered(file)


def requests_of(
    path: str, wanted: str | None = None, at_line: int | None = None
) -> Iterator[Request]:
    """The requests of a file: all, the ones with an ID, or the one of a line."""
    has_any = False
    for number, line in numbered_lines(path):
        if at_line not in (None, number):
            continue
        try:
            value = json_object(line)
            if wanted is None or str(value.get("id")) == wanted:
                has_any = True
                yield request_of(value)
        except InexactError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if not has_any:
        named = "" if wanted is None else f" with id {wanted}"
        named = named if at_line is None else f" in line {at_line}"
        raise ValueError(f"{path} has no request{named}")
