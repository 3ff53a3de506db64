"""``mmroute trace``: which hit rate a trace of requests allows, and with which routing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from mmroute.cli.common import (
    EXIT_FAILURE,
    MODEL_HELP,
    Commands,
    add_command,
    engine_arguments,
    load_normalizer,
    positive,
    print_table,
    with_progress,
)
from mmroute.request import Request
from mmroute.routing import Routing
from mmroute.traces.requests import Read, TracedRequest, read_trace
from mmroute.traces.simulation import Fleet, Policy, hit_rates

__all__ = ["add_trace"]

_EPILOG = """\
REQUESTS holds one request per line, in the order in which they came, as `mmroute blocks` takes
them; "session_id" names a conversation. Lines of Mooncake's public traces ("input_length",
"hash_ids") need no --model. Workers answer one request after the other and evict as vLLM does.

  mmroute trace requests.jsonl --model DIR --workers 4 --blocks 20000

exit status: 0 simulated; 1 no line has an exact answer; 2 bad usage
"""
_CAPACITIES: Final = 6  # sizes of the one cache, each half of the next


def add_trace(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "trace",
        "which hit rate a trace of requests allows, and what each kind of routing makes of it",
        _trace,
        epilog=_EPILOG,
    )
    parser.add_argument("requests", metavar="REQUESTS", help="the trace, as JSON Lines")
    parser.add_argument("--model", metavar="MODEL", help=MODEL_HELP)
    engine_arguments(parser)
    parser.add_argument("--block-size", metavar="N", type=positive, help="the engine's, in tokens")
    parser.add_argument(
        "--workers", metavar="N", type=positive, default=4, help="default: %(default)s"
    )
    parser.add_argument(
        "--blocks",
        metavar="N",
        type=positive,
        help="of each worker's cache (default: together half of the trace's different blocks)",
    )


def _trace(arguments: argparse.Namespace) -> int:
    read = Read()
    started = time.perf_counter()
    with Path(arguments.requests).open("rb") as lines:
        watched = (line for _, line in with_progress(lines, watched=sys.stderr.isatty()))
        traced = list(
            read_trace(watched, _answers(arguments), read, block_size=arguments.block_size)
        )
    seconds = time.perf_counter() - started
    if not traced:
        refused = ", ".join(f"{reason} {count}" for reason, count in read.refused.items())
        print(f"mmroute: no line has an exact answer ({refused or 'no line'})", file=sys.stderr)
        return EXIT_FAILURE
    report = _report(arguments, read, traced, seconds)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0


def _answers(arguments: argparse.Namespace) -> Callable[[Request], Routing] | None:
    if arguments.model is None:
        return None
    return load_normalizer(arguments).answer


def _report(
    arguments: argparse.Namespace, read: Read, traced: list[TracedRequest], seconds: float
) -> dict[str, Any]:
    every = np.concatenate([request.hashes for request in traced])
    different = max(1, len(np.unique(every)))
    largest = max(-(-request.num_tokens // read.block_size) for request in traced)
    blocks = arguments.blocks or max(largest, different // (2 * arguments.workers))
    sizes = sorted({max(largest, (different + largest) >> n) for n in range(_CAPACITIES)})
    outcomes = []
    for policy in _policies(traced):
        fleet = Fleet(policy, arguments.workers, blocks, read.block_size)
        for request in traced:
            fleet.serve(request)
        outcomes.append(dataclasses.asdict(fleet.outcome()))
    return {
        "requests": read.requests,
        "refused": dict(read.refused),
        "tokens": sum(request.num_tokens for request in traced),
        "items": {modality.value: count for modality, count in read.items.items()},
        "block_size": read.block_size,
        "blocks": len(every),
        "different_blocks": different,
        "seconds_reading": seconds,
        "one_cache": [
            {"blocks": size, "hit_rate": rate}
            for size, rate in hit_rates(traced, sizes, read.block_size)
        ],
        "workers": arguments.workers,
        "worker_blocks": blocks,
        "policies": outcomes,
    }


def _policies(traced: list[TracedRequest]) -> list[Policy]:
    """Those that the trace has what they need for."""
    has_text = any(request.chunks for request in traced)
    has_items = any(request.items for request in traced)
    without = {Policy.TEXT_PREFIX} if not has_text else set()
    without |= {Policy.TOKEN_IDS} if not has_items else set()
    return [policy for policy in Policy if policy not in without]


def _print(report: dict[str, Any]) -> None:
    refused = ", ".join(f"{reason} {count}" for reason, count in report["refused"].items())
    items = ", ".join(f"{count} {modality}s" for modality, count in report["items"].items())
    print(f"{report['requests']:,} requests with an exact answer; refused: {refused or 'none'}")
    print(f"{report['tokens']:,} tokens{', ' * bool(items)}{items}")
    print(f"{report['blocks']:,} blocks of {report['block_size']} tokens")
    print(f"{report['different_blocks']:,} different blocks")
    print("\none worker, by the size of its cache")
    curve = [(f"  {e['blocks']:,}", f"{e['hit_rate']:.1%}") for e in report["one_cache"]]
    print_table([("  BLOCKS", "HIT RATE"), *curve])
    print(f"\n{report['workers']} workers of {report['worker_blocks']:,} blocks, by routing")
    routings = [
        (
            f"  {e['policy']}",
            f"{e['hit_rate']:.1%}",
            f"{e['computed']:,}",
            f"{e['imbalance']:.2f}",
            f"{e['item_hit_rate']:.1%}",
        )
        for e in report["policies"]
    ]
    print_table([("  ROUTING", "HIT RATE", "COMPUTED", "BUSIEST", "ITEMS SEEN"), *routings])
    print("\nCOMPUTED: tokens that were not cached")
    print("BUSIEST: tokens computed by the busiest worker, of the mean")
