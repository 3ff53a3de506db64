"""What a router's credits are worth, against what the engine had in its cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Credit(NamedTuple):
    """The tokens of one prompt, or of many.

    Attributes:
        right: those that the router credited, and the engine had.
        wrong: those that it credited, and the engine did not have.
        missed: those that the engine had, and the router did not credit.
    """

    right: float
    wrong: float
    missed: float


def score(credited: float, cached: int) -> Credit:
    """Compare a router's credit with the engine's ``cached_tokens``. Both count leading tokens."""
    right = min(credited, cached)
    return Credit(right, credited - right, cached - right)


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one request.

    Attributes:
        kind: the request's kind, or the name of a probe.
        worker: the number of the worker that answered.
        prompt_tokens: the engine's own count.
        cached: the tokens that it took from its cache, by its response.
        credited: the tokens that the router expected there; None where it does not tell.
        processor_seconds: what the router took for it.
    """

    kind: str
    worker: int
    prompt_tokens: int
    cached: int
    credited: float | None
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """One router's run, summed up. Shares are of all prompt tokens, 0 to 1.

    Attributes:
        hit_rate: hits of queries, by the engines' own counters.
        by_kind: the same by kind of request, by the responses.
        credits: right, wrong and missed; None for a router that does not tell.
        exact: the share of requests whose credit was the very number of cached tokens.
        busiest: the requests of the busiest worker, divided by the mean.
        milliseconds: processor time of the router for a request.
        megabytes: the most memory that the router's process took; None for one without a process.
        probes: each probe's credit, in tokens.
        altered: the probes of which the router changed what the prompt is made of.
    """

    hit_rate: float
    by_kind: dict[str, float]
    credits: Credit | None
    exact: float | None
    busiest: float
    milliseconds: float
    megabytes: float | None
    probes: dict[str, Credit]
    altered: list[str]


def sum_up(
    sent: list[Sent],
    probed: Iterable[Sent],
    *,
    hit_rate: float,
    workers: int,
    megabytes: float | None,
    altered: list[str],
) -> Run:
    """The sums of one run."""
    tokens = sum(one.prompt_tokens for one in sent)
    by_kind = {}
    for kind in dict.fromkeys(one.kind for one in sent):
        of_kind = [one for one in sent if one.kind == kind]
        by_kind[kind] = sum(o.cached for o in of_kind) / sum(o.prompt_tokens for o in of_kind)
    told = [(one.credited, one.cached) for one in sent if one.credited is not None]
    parts = zip(*(score(credited, cached) for credited, cached in told), strict=True)
    at_worker = [sum(one.worker == number for one in sent) for number in range(workers)]
    return Run(
        hit_rate,
        by_kind,
        Credit(*(sum(part) / tokens for part in parts)) if told else None,
        sum(credited == cached for credited, cached in told) / len(sent) if told else None,
        max(at_worker) * workers / len(sent),
        sum(one.processor_seconds for one in sent) * 1e3 / len(sent),
        megabytes,
        {p.kind: score(p.credited, p.cached) for p in probed if p.credited is not None},
        altered,
    )
