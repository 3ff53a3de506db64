"""``mmroute bench``: measure what the requests of a file cost here, in this process."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.answering.stages import Stage, Stopwatch
from mmroute.cli.arguments import Commands, add_command, encoder_argument, positive
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import EXIT_FAILURE, failed
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.lab.traces.requests import comparable_hashes
from mmroute.normalizer import Normalizer
from mmroute.requests.lines import json_object, numbered, request_of
from mmroute.requests.request import Request
from mmroute.reuse.fast_paths import REFERENCE_ONLY, FastPaths

_PERCENTILES: Final = (50, 95, 99)
_WHOLE: Final = "whole request"
_HASH: Final = f"+ {Stage.HASH}"
# What a model does only for its first prompts, and for the first hash of a full block.
_WARM_UP: Final = ("a b c", "1 2 3 " * 100)
_EPILOG = """\
FILE has request lines, as `mmroute tokens` takes them. All are answered once, when they are new to
the caches, and with --repeat again. Stages: parse, render (the chat template), encode, count, place
and identify. Block hashes come on top of the whole request. Each answer is compared with
`tokenizers` alone, without any cache, or nothing is reported.

exit status: 0 measured; 1 failure, a wrong answer, or no request that has one; 2 bad usage
"""
_MEBIBYTE: Final = 1 << 20
_SHOWN: Final = 5  # requests without an answer


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
) -> Iterator[dict[str, Any]]:
    """Answer all requests `repeat` times; the first time they are new to the caches.

    Each answer of the first pass is compared with the one beside its request. Of each pass there
    are the requests that one core answers in a second with their block hashes, the percentiles of
    each stage and of the whole request, and the number of requests without hashes, by reason.
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
        yield {
            "per_second": len(asked) / spent * 1e9,
            "microseconds": {str(name): _percentiles(times[name]) for name in names},
            "unhashed": dict(unhashed),
        }


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


def add_bench(commands: Commands) -> None:
    """Add the command."""
    bench = add_command(
        commands,
        "bench",
        "what your requests cost here: microseconds by stage, requests per core, memory",
        _bench,
        epilog=_EPILOG,
    )
    model_arguments(bench)
    encoder_argument(bench)
    bench.add_argument(
        "--input",
        metavar="FILE",
        type=Path,
        required=True,
        help="your requests, as for `mmroute tokens`",
    )
    bench.add_argument(
        "--repeat",
        metavar="N",
        type=positive,
        default=2,
        help="how often all requests are answered (default: %(default)s)",
    )


def _bench(arguments: argparse.Namespace) -> int:
    if not arguments.input.is_file():
        return failed(arguments, f"--input: there is no file {arguments.input}")
    report = _measured(arguments)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        print("\n".join(_lines(report)))
    return 0 if report["passes"] else EXIT_FAILURE


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    started, before = time.perf_counter(), rss_bytes()
    paths = FastPaths(arguments.encoder, at_once=True)
    normalizer = load_normalizer(arguments, fast_paths=paths)
    encoder = normalizer.stats().encoder  # waits for it
    seconds, memory = time.perf_counter() - started, rss_bytes() - before
    reference = load_normalizer(arguments, fast_paths=REFERENCE_ONLY)
    asked, inexact = read_requests(arguments.input, reference)
    if not asked and not inexact:
        raise InexactError(Reason.INVALID_REQUEST, f"{arguments.input} has no line")

    passes = measure(normalizer, asked, repeat=arguments.repeat)
    return {
        "model": normalizer.model.name,
        "family": normalizer.model.family.family,
        "encoder": f"{encoder.engine}: {encoder.why}" if encoder else "",
        "ready_seconds": seconds,
        "memory_bytes": memory,
        "requests": len(asked),
        "token_ids": sum(len(routing.token_ids) for _, routing in asked),
        "items": sum(len(routing.placeholders) for _, routing in asked),
        "inexact": {
            "reasons": Counter(error.reason for _, error in inexact),
            "examples": [
                {"where": where, "reason": error.reason, "message": str(error)}
                for where, error in inexact[:_SHOWN]
            ],
        },
        "passes": list(passes) if asked else [],
    }


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['model']} ({report['family']}), encoder: {report['encoder'] or 'its own'}"
    yield (
        f"ready after {report['ready_seconds']:.2f} s, "
        f"{report['memory_bytes'] / _MEBIBYTE:.0f} MiB with the libraries that it loads"
    )
    yield (
        f"{report['requests']:,} requests, {report['token_ids']:,} token IDs, "
        f"{report['items']:,} items"
    )
    for number, each in enumerate(report["passes"]):
        yield ""
        yield f"  {'again' if number else 'new requests':<18}{'p50':>10}{'p95':>10}{'p99':>10} us"
        for name, found in each["microseconds"].items():
            yield f"  {name:<18}" + "".join(f"{value:>10.1f}" for value in found.values())
        for reason, count in each["unhashed"].items():
            yield f"  {count} requests have no block hashes: {reason}"
        yield f"  {each['per_second']:,.0f} requests a second on one core, with their hashes"
    reasons = report["inexact"]["reasons"]
    if reasons:
        counted = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        yield f"\n{sum(reasons.values())} requests have no exact answer: {counted}"
    for example in report["inexact"]["examples"]:
        yield f"  {example['where']}: {example['reason']}: {example['message']}"
