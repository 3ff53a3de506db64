"""Measures what the requests of a file cost a loaded model, in this process."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.answering.stages import Stage, Stopwatch
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.lab.traces.requests import comparable_hashes
from mmroute.normalizer import Normalizer
from mmroute.requests.lines import json_object, numbered, request_of
from mmroute.requests.request import Request

_PERCENTILES: Final = (50, 95, 99)
_WHOLE: Final = "whole request"
_HASH: Final = f"+ {Stage.HASH}"
# What a model does only for its first prompts, and for the first hash of a full block.
_WARM_UP: Final = ("a b c", "1 2 3 " * 100)


@dataclass(frozen=True, slots=True)
class Pass:
    """Every request of the file, answered once."""

    per_second: float  # the requests that one core answers in a second, with their block hashes
    # The percentiles of each stage and of the whole request, by their names.
    microseconds: Mapping[str, Mapping[str, float]]
    unhashed: Mapping[str, int]  # the number of requests without block hashes, by reason


def read_requests(
    path: Path, reference: Normalizer
) -> tuple[list[tuple[Request, Routing]], list[tuple[str, InexactError]]]:
    """The requests of a file with their answers; and the ID or line of those that have none."""
    asked: list[tuple[Request, Routing]] = []
    inexact: list[tuple[str, InexactError]] = []
    for number, line in numbered(path.read_bytes().splitlines()):
        where = f"line {number}"
        try:
            value = json_object(line)
            where = str(value.get("id") or where)
            request = request_of(value)
            right = reference.answer(request)
            _ = right.token_ids  # an inexact routing has none
        except InexactError as error:
            inexact.append((where, error))
        else:
            asked.append((request, right))
    return asked, inexact


def measure(
    normalizer: Normalizer,
    asked: Sequence[tuple[Request, Routing]],
    *,
    repeat: int,
) -> Iterator[Pass]:
    """Answer all requests `repeat` times; the first time they are new to the caches.

    Each answer of the first pass is compared with the one beside its request.
    """
    watch = Stopwatch()
    watched = replace(normalizer, watch=watch)
    for prompt in _WARM_UP:
        with contextlib.suppress(MmrouteError):  # of requests without hashes, which are counted
            comparable_hashes(watched.normalize(prompt=prompt))
    for number in range(repeat):
        times: dict[str, list[int]] = {}
        unhashed: Counter[str] = Counter()
        answers = []
        gc.collect()
        spent = time.process_time_ns()
        for request, _ in asked:
            watch.start()
            started = time.perf_counter_ns()
            routing = watched.answer(request)
            answered = time.perf_counter_ns()
            try:
                comparable_hashes(routing)
                times.setdefault(_HASH, []).append(time.perf_counter_ns() - answered)
            except MmrouteError as error:  # for example of images without identities
                unhashed[error.reason] += 1
            times.setdefault(_WHOLE, []).append(answered - started)
            for stage, nanoseconds in watch.spent().items():
                if stage is not Stage.HASH:
                    times.setdefault(stage.value, []).append(nanoseconds)
            if not number:
                answers.append(routing)
        spent = time.process_time_ns() - spent
        if not number:
            _check(asked, answers)
        names = [name for name in (*Stage, _WHOLE, _HASH) if name in times]
        microseconds = {str(name): _percentiles(times[name]) for name in names}
        yield Pass(len(asked) / spent * 1e9, microseconds, dict(unhashed))


def _check(asked: Sequence[tuple[Request, Routing]], answers: Sequence[Routing]) -> None:
    for (_, right), answer in zip(asked, answers, strict=True):
        same = answer.exact and np.array_equal(answer.token_ids, right.token_ids)
        if not same or answer.placeholders != right.placeholders:
            raise MmrouteError(
                Reason.SELF_CHECK_FAILED,
                "an answer differs from that of the reference without fast paths; nothing is "
                "reported",
            )


def _percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    found = np.percentile(np.asarray(nanoseconds) / 1000, _PERCENTILES).round(2).tolist()
    return {f"p{p}": each for p, each in zip(_PERCENTILES, found, strict=True)}


def rss_bytes() -> int:
    """Resident memory of this process in bytes; its peak if the system has no better figure."""
    import resource  # missing on Windows

    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
