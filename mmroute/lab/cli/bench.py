"""``mmroute bench``: measure a model's requests on this machine."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, encoder_argument, positive
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import EXIT_FAILURE, failed
from mmroute.errors import InexactError, Reason
from mmroute.lab.bench import measure, read_requests, rss_bytes
from mmroute.reuse.fast_paths import REFERENCE_ONLY, FastPaths

_EPILOG = """\
FILE has request lines, as `mmroute tokens` takes them. All are answered once, when they are new to
the caches, and with --repeat again. Stages: parse, render (the chat template), encode, count, place
and identify. Block hashes come on top of the whole request. Each answer is compared with
`tokenizers` alone, without any cache, or nothing is reported.

exit status: 0 measured; 1 failure, a wrong answer, or no request that has one; 2 bad usage
"""
_MEBIBYTE: Final = 1 << 20
_SHOWN: Final = 5  # requests without an answer


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
        "passes": [asdict(each) for each in passes] if asked else [],
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
