"""Measures the requests per second of all cores, each with a process and a normalizer."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmroute.lab.bench.children import Build, Child, different_answers
from mmroute.lab.bench.mixes import Mix

_WARM_UP: Final = 20


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of all processes together.

    Attributes:
        mix: the name of the mix.
        processes: the number of processes.
        requests: the number of requests that all processes answered.
        seconds: the seconds from the common start until the slowest process was done.
        per_second: the requests per second of all processes together.
        distinct: whether all requests were different.
    """

    mix: str
    processes: int
    requests: int
    seconds: float
    per_second: float
    distinct: bool


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def measure_throughput(
    timed: Build,
    reference: Build,
    mixes: Sequence[Mix],
    setup: Mapping[str, Any],
    *,
    processes: int,
    requests: Mapping[str, int],
    progress: Callable[[str], None],
) -> Iterator[Throughput]:
    """Have processes answer at the same time, one mix after the other."""
    if not mixes:
        return
    with contextlib.ExitStack() as stack:
        allowed = cores()
        bound = [{**setup, "core": allowed[n % len(allowed)]} for n in range(processes)]
        pairs = [
            (stack.enter_context(Child(timed, each)), stack.enter_context(Child(reference, each)))
            for each in bound
        ]
        for child in itertools.chain(*pairs):
            child.receive()
        for mix in mixes:
            count = requests[mix.name]
            progress(f"{mix.name}: throughput of {processes} processes, {count} requests each")
            yield throughput_of(pairs, mix, count)


def throughput_of(pairs: Sequence[tuple[Child, Child]], mix: Mix, requests: int) -> Throughput:
    """Have the first process of each pair answer, all at the same time; then the second ones."""
    for number, pair in enumerate(pairs):
        # Each process gets requests that no other process gets.
        first = number * (requests + _WARM_UP)
        fields = [mix.request(first + each) for each in range(requests + _WARM_UP)]
        for child in pair:
            child.ask("prepare", [*mix.before(), *fields[requests:]], fields[:requests])
    for child, _ in pairs:
        child.send(["answer_prepared"])
    answered = [child.receive() for child, _ in pairs]
    for _, reference in pairs:
        reference.send(["answer_prepared"])
    for (child, reference), (_, digests) in zip(pairs, answered, strict=True):
        _, right = reference.receive()
        for number, (one, other) in enumerate(zip(digests, right, strict=True)):
            if one != other:
                raise different_answers(mix, number, child, reference)
    total = len(pairs) * requests
    seconds = max(seconds for seconds, _ in answered)
    return Throughput(
        mix=mix.name,
        processes=len(pairs),
        requests=total,
        seconds=seconds,
        per_second=total / seconds,
        distinct=mix.distinct is None or mix.distinct >= total,
    )
