"""``mmroute trace``: the hit rates that a trace of requests allows, by routing policy."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, positive, require_extra
from mmroute.cli.engine_options import MODEL_HELP, engine_arguments, load_normalizer
from mmroute.cli.output import failed, print_table, with_progress
from mmroute.errors import InexactError, Reason
from mmroute.lab.traces.requests import Chunk, numbered_lines, read_chunk
from mmroute.lab.traces.simulation import Outcome, Policy, best_cached, curve_sizes, simulate
from mmroute.normalizer import Normalizer
from mmroute.reuse.fast_paths import FastPaths

_EPILOG = """\
REQUESTS holds one request per line, in the order in which they came, as `mmroute blocks` takes
them; a line may say "session_id" (its conversation) and "output_length" (tokens of the answer).
Workers answer one request after the other and evict as vLLM does.

  mmroute trace requests.jsonl --model DIR --workers 4 --blocks 20000

exit status: 0 simulated; 1 no line has an exact answer; 2 bad usage
"""
_MAX_BLOCKS: Final = 1 << 16  # the default limit; a block takes some 100 bytes
_MAX_LINES: Final = 20  # of each reason for which lines are refused


def add_trace(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "trace",
        "the hit rate that a trace of requests allows, and that of each kind of routing",
        _trace,
        epilog=_EPILOG,
    )
    parser.add_argument("requests", metavar="REQUESTS", help="the trace, JSON Lines")
    parser.add_argument("--model", metavar="MODEL", required=True, help=MODEL_HELP)
    engine_arguments(parser)
    parser.add_argument(
        "--block-size",
        metavar="N",
        type=positive,
        help="the engine's block size in tokens (default: as for `mmroute blocks`)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=positive,
        default=4,
        help="the number of workers to simulate (default: %(default)s)",
    )
    parser.add_argument(
        "--blocks",
        metavar="N",
        type=positive,
        help="the size of each worker's cache in blocks (default: together half of the trace's "
        f"different blocks, and at most {_MAX_BLOCKS})",
    )
    parser.add_argument(
        "--ray",
        action="store_true",
        help="answer the lines by Ray Data, on the cluster of RAY_ADDRESS or one of this machine",
    )


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.ray:
        require_extra("ray", "ray")
    normalizer = load_normalizer(arguments, fast_paths=FastPaths(at_once=True))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints its messages
            report = _report(arguments, normalizer, _read(arguments, normalizer))
    except (OSError, ValueError) as error:
        return failed(arguments, error)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0


def _read(arguments: argparse.Namespace, normalizer: Normalizer) -> Chunk:
    """The complete trace."""
    path, read = arguments.requests, Chunk()
    if arguments.ray:
        from mmroute.lab.traces.trace_chunks import chunks_by_ray  # Ray

        chunks = chunks_by_ray(path, normalizer, arguments.block_size)
    else:
        lines = with_progress(numbered_lines(path), "lines", watched=sys.stderr.isatty())
        chunks = iter([read_chunk(lines, normalizer.answer, arguments.block_size)])
    for chunk in chunks:
        read.requests += chunk.requests
        read.refused += chunk.refused
        read.items += chunk.items
        read.block_size = read.block_size or chunk.block_size
    if not read.requests:
        if not read.refused:
            raise InexactError(Reason.INVALID_REQUEST, f"{path} has no line")
        reason, line = read.refused[0]
        raise InexactError(
            Reason(reason),
            f"no line has an exact answer; line {line}: {reason}; `mmroute tokens` says why",
        )
    return read


def _report(arguments: argparse.Namespace, normalizer: Normalizer, read: Chunk) -> dict[str, Any]:
    """The values of a report, as JSON has them."""
    requests, block_size = read.requests, read.block_size
    tokens = sum(request.num_tokens for request in requests)
    cached, different = best_cached(requests, block_size)
    largest = max(-(-(r.num_tokens + r.output_length) // block_size) for r in requests)
    share = min(_MAX_BLOCKS, different // (2 * arguments.workers))
    blocks = arguments.blocks or max(largest, share)

    def simulated(policy: Policy, workers: int, blocks: int) -> Outcome:
        return simulate(requests, policy, workers=workers, blocks=blocks, block_size=block_size)

    return {
        "engine": normalizer.model.engine.release.label,
        "requests": len(requests),
        "refused": _refused(read),
        "tokens": tokens,
        "output_tokens": sum(request.output_length for request in requests),
        "items": dict(read.items),
        "block_size": block_size,
        "blocks": sum(len(request.hashes) for request in requests),
        "different_blocks": different,
        "best_hit_rate": cached * block_size / tokens,
        "one_cache": [
            {"blocks": size, "hit_rate": simulated(Policy.ROUND_ROBIN, 1, size).hit_rate}
            for size in curve_sizes(different)
        ],
        "workers": arguments.workers,
        "worker_blocks": blocks,
        "policies": [
            {"policy": policy} | dataclasses.asdict(simulated(policy, arguments.workers, blocks))
            for policy in Policy
        ],
    }


def _refused(read: Chunk) -> dict[str, Any]:
    """The number of refused lines by reason, and the first lines of each."""
    refused: dict[str, Any] = {}
    for reason, line in read.refused:
        each = refused.setdefault(reason, {"count": 0, "lines": []})
        each["count"] += 1
        each["lines"] += [line] if len(each["lines"]) < _MAX_LINES else []
    return refused


def _print(report: dict[str, Any]) -> None:
    print(f"{report['requests']:,} requests with an exact answer of {report['engine']}")
    for reason, refused in report["refused"].items():
        print(f"{refused['count']:,} refused: {reason} (first in line {refused['lines'][0]})")
    counts = {
        "tokens of prompts": report["tokens"],
        "tokens of answers": report["output_tokens"],
        **{f"{modality}s": count for modality, count in report["items"].items()},
        f"blocks of {report['block_size']} tokens": report["blocks"],
        "different blocks": report["different_blocks"],
    }
    for name, count in counts.items():
        print(f"{count:,} {name}")
    print(f"{report['best_hit_rate']:.1%} of the tokens come again, the best hit rate")
    print("\none worker, by the size of its cache")
    curve = [(f"{each['blocks']:,}", f"{each['hit_rate']:.1%}") for each in report["one_cache"]]
    _print_rows(("BLOCKS", "HIT RATE"), *curve)
    print(f"\n{report['workers']} workers of {report['worker_blocks']:,} blocks, by routing")
    rates = [
        (e["policy"], f"{e['hit_rate']:.1%}", f"{e['computed']:,}", f"{e['imbalance']:.2f}")
        for e in report["policies"]
    ]
    _print_rows(("ROUTING", "HIT RATE", "COMPUTED", "BUSIEST"), *rates)
    print("\nCOMPUTED: tokens that were not cached")
    print("BUSIEST: tokens computed by the busiest worker, divided by the mean of all workers")
    if too_large := report["policies"][0]["too_large"]:
        print(f"{too_large:,} requests have more blocks than a worker, and are never cached")


def _print_rows(*rows: tuple[str, ...]) -> None:
    """Print a table, indented; the first row is the heading."""
    print_table([(f"  {row[0]}", *row[1:]) for row in rows])
