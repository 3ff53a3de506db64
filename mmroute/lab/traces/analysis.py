"""The analysis of a trace: counts, simulated routing, and the causes of lost reuse."""

from __future__ import annotations

import functools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from mmroute.errors import InexactError
from mmroute.lab.traces.changes import Cause
from mmroute.lab.traces.explain import Explanation, explain
from mmroute.lab.traces.requests import Chunk
from mmroute.lab.traces.reuse import ReuseCurve
from mmroute.lab.traces.simulation import Fleet, FleetSize, Outcome, Policy
from mmroute.lab.traces.sources import numbered_lines
from mmroute.lab.traces.suspects import Suspect, Suspects
from mmroute.lab.traces.workers import Processes, traced_requests
from mmroute.normalizer import Normalizer
from mmroute.requests.lines import json_object, request_of

Progress: TypeAlias = Callable[[str], None]

_MAX_EXPLAINED: Final = 200  # pairs, whose requests are in memory together
_MAX_LINES: Final = 20


@dataclass(slots=True)
class Refused:
    """The lines without an exact answer for one reason.

    Attributes:
        count: the number of lines.
        lines: the line numbers of the first 20.
        message: the message of the first line.
    """

    count: int = 0
    lines: list[int] = field(default_factory=list)
    message: str = ""


class Reading:
    """The counts of a trace, made while its chunks are read.

    Attributes:
        path: the path of the trace.
        chunks: the files of the chunks that were counted.
        requests: the number of lines with an exact answer.
        refused: the other lines, by reason.
        items: the number of items, by modality.
        item_tokens: the number of positions that receive features.
        output_tokens: the number of tokens in outputs; 0 if the trace has no output lengths.
        costs: the processor time of each request, in microseconds.
        largest: the number of blocks of the largest prompt with its output.
        has_text: whether the requests have text, which routers could compare.
        block_size: the number of tokens in a block; 0 before the first request.
        curve: the hit rates of one cache that gets all requests.
        suspects: the pairs of requests that may have lost reuse.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.chunks: list[Path] = []
        self.requests = self.item_tokens = self.output_tokens = self.block_size = 0
        self.refused: dict[str, Refused] = {}
        self.items: Counter[str] = Counter()
        self.costs = array("I")
        self.largest = 1
        self.has_text = False
        self.curve = ReuseCurve(1)
        self.suspects = Suspects(1)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk to the counts."""
        for reason, line, message in chunk.refused:
            refused = self.refused.setdefault(reason, Refused(message=message))
            refused.count += 1
            if len(refused.lines) < _MAX_LINES:
                refused.lines.append(line)
        if not self.requests:
            self.block_size = chunk.block_size
            self.curve, self.suspects = ReuseCurve(self.block_size), Suspects(self.block_size)
        self.requests += len(chunk.requests)
        self.items.update(chunk.items)
        for request in chunk.requests:
            self.suspects.add(request, self.curve.add(request))
            self.item_tokens += sum(item.features for item in request.items)
            self.output_tokens += request.output_length
            self.costs.append(request.cost)
            blocks = -(-(request.num_tokens + request.output_length) // self.block_size)
            self.largest = max(self.largest, blocks)
            self.has_text = self.has_text or bool(request.text)


@dataclass(slots=True)
class Loss:
    """The reuse that a trace loses by one cause.

    Attributes:
        cause: the cause.
        tokens: the number of tokens that two requests have in common and do not share. It is an
            estimate if not all suspects were explained.
        pairs: the number of pairs of requests, which may be an estimate as well.
        example: the pair that lost most.
        explanation: the explanation of this pair.
    """

    cause: Cause
    tokens: float
    pairs: float
    example: Suspect
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of an analysis.

    Attributes:
        reading: the counts of the trace.
        fleet: the simulated workers.
        outcomes: the outcome of each policy for which the trace has the data.
        explained: the number of suspects that were explained.
        losses: the losses by cause, the largest first.
    """

    reading: Reading
    fleet: FleetSize
    outcomes: list[Outcome]
    explained: int
    losses: list[Loss]


def read_trace(path: str, chunks: Iterable[tuple[Path, Chunk]], progress: Progress) -> Reading:
    """Count the requests of a trace."""
    reading = Reading(path)
    for chunk_path, chunk in chunks:
        reading.chunks.append(chunk_path)
        reading.add(chunk)
        progress(f"{reading.requests:,} requests read")
    return reading


def analyse(
    reading: Reading, fleet: FleetSize, processes: Processes, progress: Progress
) -> Analysis:
    """Simulate the routing of a trace that was read, and explain its losses."""
    # The policies for which the trace has the data.
    without = set() if reading.has_text else {Policy.SESSION, Policy.TEXT_PREFIX}
    without |= set() if reading.items else {Policy.TOKEN_IDS}
    policies = [policy for policy in Policy if policy not in without]
    shares = [policies[n :: processes.count] for n in range(processes.count)]
    tasks = [(share, fleet, reading.chunks) for share in shares]
    outcomes: list[Outcome] = []
    progress(f"{reading.requests:,} requests read; simulating routing")
    for share in processes.map(_simulate, tasks):
        outcomes += share
    outcomes.sort(key=lambda outcome: policies.index(outcome.policy))
    suspects = reading.suspects.drawn(_MAX_EXPLAINED)
    progress(f"explaining {len(suspects):,} pairs of requests")
    losses = _losses_by_cause(reading.path, suspects, reading.block_size, processes)
    return Analysis(reading, fleet, outcomes, len(suspects), losses)


def _simulate(
    _: Normalizer | None, task: tuple[list[Policy], FleetSize, Sequence[Path]]
) -> list[Outcome]:
    policies, size, chunks = task
    fleets = [Fleet(policy, size) for policy in policies]
    for request in traced_requests(chunks):
        for fleet in fleets:
            fleet.serve(request)
    return [fleet.outcome() for fleet in fleets]


def _losses_by_cause(
    path: str, suspects: Sequence[Suspect], block_size: int, processes: Processes
) -> list[Loss]:
    wanted = {line for suspect in suspects for line in (suspect.first, suspect.second)}
    lines = {n: line for n, line in numbered_lines(path) if n in wanted} if wanted else {}
    tasks = [(lines[suspect.first], lines[suspect.second]) for suspect in suspects]
    losses: dict[Cause, Loss] = {}
    explained = processes.map(functools.partial(_explained, block_size=block_size), tasks)
    for suspect, explanation in zip(suspects, explained, strict=True):
        if explanation is None or explanation.cause is None or not explanation.lost_tokens:
            continue
        loss = losses.setdefault(
            explanation.cause, Loss(explanation.cause, 0, 0, suspect, explanation)
        )
        loss.tokens += explanation.lost_tokens * suspect.stands_for
        loss.pairs += suspect.stands_for
        if explanation.lost_tokens > loss.explanation.lost_tokens:
            loss.example, loss.explanation = suspect, explanation
    return sorted(losses.values(), key=lambda loss: -loss.tokens)


def _explained(
    normalizer: Normalizer | None, pair: tuple[bytes, bytes], *, block_size: int
) -> Explanation | None:
    if normalizer is None:
        return None
    first, second = (request_of(json_object(line)) for line in pair)
    answer, tokenizer = normalizer.answer, normalizer.model.tokenizer
    try:
        return explain(first, second, answer, tokenizer, block_size=block_size)
    except InexactError:  # for example a link that no longer works
        return None
