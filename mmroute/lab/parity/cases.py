"""The requests of a comparison, their files, their outcomes, and the interface of oracles."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from mmroute.engines.running import RunningEngine
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.geometry import EmbedRuns
from mmroute.requests.items import Modality
from mmroute.requests.lines import json_object, numbered
from mmroute.token_ids import TokenIds

_ITEM_FIELDS: Final = ("images", "videos", "audios")
Range: TypeAlias = tuple[int, int]
"""The offset and length of one image in the expanded prompt."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request to compare."""

    id: str  # the name of the case in the report
    kind: str  # the kind of test, such as ``rounding``, by which the report counts
    request: Mapping[str, Any]  # the request as ``mmroute tokens`` reads it, without id

    @property
    def num_items(self) -> Counter[str]:
        """The number of items by modality, those beside messages and those in their parts."""
        counts: Counter[str] = Counter()
        for part in parts_of(self.request.get("messages")):
            counts[str(part.get("type")).removeprefix("input_").removesuffix("_url")] += 1
        for field in _ITEM_FIELDS:
            kind = field.removesuffix("s")
            counts[kind] = max(counts[kind], len(self.request.get(field) or ()))
        return counts

    @property
    def modalities(self) -> frozenset[Modality]:
        """The modalities of the request's items."""
        counts = self.num_items
        return frozenset(modality for modality in Modality if counts[modality])


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The answer of an engine, or of mmroute, to one request: token IDs, or a refusal."""

    # The expanded prompt, shape (n,), uint32; None if the request is refused.
    token_ids: TokenIds | None = None
    # The placeholder ranges by position; None if the oracle does not give them.
    ranges: tuple[Range, ...] | None = None
    refusal: str | None = None  # the first words of the refusal; None if there are IDs
    # The identities of the items by position; None if they are not known.
    identities: tuple[str, ...] | None = None
    # The positions of each range that receive features, as runs in the order of `ranges`; None
    # for a range of which they are not known, and where no range is.
    features: tuple[EmbedRuns | None, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The data that an engine reports of a prompt that was sent to it."""

    refusal: str | None = None  # the first words of its refusal; None if it answered
    # The expanded prompt, shape (n,), uint32; None if it is not told.
    token_ids: TokenIds | None = None
    num_tokens: int | None = None  # the number of its tokens; None if it is not told
    # The number of tokens taken from the cache; None if it is not told.
    cached_tokens: int | None = None


class UndecidedError(Exception):
    """An oracle does not know the engine's answer to a request; the message says why."""


class Oracle(Protocol):
    """A source of expected results: the engine itself, or a record of its answers."""

    name: str  # the name in the report, such as ``vllm``
    version: str  # the version of the software that computes the results, such as ``0.33.0``

    @property
    def running(self) -> RunningEngine | None:
        """The engine that answers, or whose answers are recorded; None if it is no engine."""

    def answer(self, case: Case) -> Outcome:
        """The engine's answer to a request."""


def parts_of(messages: object) -> Iterator[Mapping[str, Any]]:
    """The parts of the messages whose content is a list, as far as they are objects."""
    for message in messages if isinstance(messages, Sequence) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


def merged_runs(runs: Iterable[tuple[bool, int]]) -> EmbedRuns:
    """Runs of which no two neighbours are alike, so that equal positions have equal runs.

    >>> merged_runs([(True, 2), (True, 1), (False, 0), (False, 3)])
    ((True, 3), (False, 3))
    """
    groups = itertools.groupby((run for run in runs if run[1]), key=lambda run: run[0])
    return tuple((embed, sum(length for _, length in group)) for embed, group in groups)


def json_objects(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The objects of a file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise MmrouteError(Reason.MISSING_FILE, message) from error
    if not content.strip():
        raise MmrouteError(Reason.MALFORMED_FILE, f"{path} has no request")
    # Only a line feed ends a line, because strings may have other separators.
    for number, line in numbered(content.split(b"\n")):
        where = f"{path}, line {number}"
        try:
            value = json_object(line)
        except InexactError as error:
            raise MmrouteError(Reason.MALFORMED_FILE, f"{where}: {error}") from error
        yield number, where, value
