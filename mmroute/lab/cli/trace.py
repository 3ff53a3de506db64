"""``mmroute trace``: the hit rates that a trace of requests allows, by routing policy."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, positive, require_extra
from mmroute.cli.engine_options import MODEL_HELP, engine_arguments, load_normalizer
from mmroute.cli.output import failed, print_table, show_progress
from mmroute.engine import DEFAULT
from mmroute.errors import InexactError, Reason
from mmroute.lab.traces.losses import Loss, Suspect, losses_by_cause, suspects
from mmroute.lab.traces.requests import Chunk, TracedRequest, read_chunk
from mmroute.lab.traces.simulation import FleetSize, Policy, best_cached, curve_sizes, simulate
from mmroute.lab.traces.sources import numbered_lines
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
_CHUNK_LINES: Final = 1000
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
    parser.add_argument(
        "--show-text",
        action="store_true",
        help="show what prompts say: where examples differ, and why lines were refused",
    )


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.ray:
        require_extra("ray", "ray")
    normalizer = load_normalizer(arguments, fast_paths=FastPaths(at_once=True))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints its messages
            read = _read(arguments, normalizer)
            report = _report(arguments, normalizer, read)
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
        chunks = _chunks(path, normalizer, arguments.block_size)
    for chunk in chunks:
        read.requests += chunk.requests
        read.refused += chunk.refused
        read.items += chunk.items
        read.block_size = read.block_size or chunk.block_size
        show_progress(f"{len(read.requests):,} requests read")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if not read.requests:
        if not read.refused:
            raise InexactError(Reason.INVALID_REQUEST, f"{path} has no line")
        counted = Counter(reason for reason, _, _ in read.refused)
        refused = ", ".join(f"{reason} {count}" for reason, count in counted.items())
        reason, line, message = read.refused[0]
        shown = message if arguments.show_text else "--show-text says why"
        raise InexactError(
            Reason(reason), f"no line has an exact answer ({refused}); line {line}: {shown}"
        )
    return read


def _chunks(path: str, normalizer: Normalizer, block_size: int | None) -> Iterator[Chunk]:
    lines = numbered_lines(path)
    while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
        yield read_chunk(chunk, normalizer.answer, block_size)


def _report(arguments: argparse.Namespace, normalizer: Normalizer, read: Chunk) -> dict[str, Any]:
    """The values of a report, as JSON has them."""
    requests, block_size = read.requests, read.block_size
    tokens = sum(request.num_tokens for request in requests)
    cached, different = best_cached(requests, block_size)
    best = sum(cached) * block_size / tokens
    fleet = FleetSize(
        workers=arguments.workers,
        blocks=arguments.blocks
        or max(
            min(_MAX_BLOCKS, different // (2 * arguments.workers)),
            *(_blocks_of(request, block_size) for request in requests),
        ),
        block_size=block_size,
    )
    outcomes = {policy.value: simulate(requests, policy, fleet) for policy in Policy}
    curve = {
        size: simulate(requests, Policy.ROUND_ROBIN, FleetSize(1, size, block_size)).hit_rate
        for size in curve_sizes(different)
    }
    pairs = suspects(requests, cached, block_size)
    explained, losses = losses_by_cause(arguments.requests, pairs, normalizer, block_size)
    return {
        "engine": normalizer.model.engine.release.label,
        "requests": len(requests),
        "refused": _refused(read, arguments.show_text),
        "tokens": tokens,
        "output_tokens": sum(request.output_length for request in requests),
        "items": dict(read.items),
        "block_size": block_size,
        "blocks": sum(len(request.hashes) for request in requests),
        "different_blocks": different,
        "best_hit_rate": best,
        "one_cache": [{"blocks": size, "hit_rate": rate} for size, rate in curve.items()],
        "workers": fleet.workers,
        "worker_blocks": fleet.blocks,
        "policies": [
            {"policy": policy} | dataclasses.asdict(outcome) for policy, outcome in outcomes.items()
        ],
        "suspects": len(pairs),
        "explained": explained,
        "losses": [_loss(arguments, loss) for loss in losses],
    }


def _blocks_of(request: TracedRequest, block_size: int) -> int:
    return -(-(request.num_tokens + request.output_length) // block_size)


def _refused(read: Chunk, show_text: bool) -> dict[str, Any]:
    """The number of refused lines by reason, and the first lines of each."""
    refused: dict[str, Any] = {}
    for reason, line, message in read.refused:
        each = refused.setdefault(reason, {"count": 0, "lines": []})
        if show_text:
            each.setdefault("message", message)
        each["count"] += 1
        each["lines"] += [line] if len(each["lines"]) < _MAX_LINES else []
    return refused


def _loss(arguments: argparse.Namespace, loss: Loss) -> dict[str, Any]:
    example = {
        "first_line": loss.example.first,
        "second_line": loss.example.second,
        "lost_tokens": loss.explanation.lost_tokens,
        "text": loss.explanation.text,
        "command": _explain_command(arguments, loss.example),
    }
    if arguments.show_text:
        example |= {"was": loss.explanation.was, "now": loss.explanation.now}
    return {"cause": loss.cause.value, "tokens": loss.tokens, "pairs": loss.pairs} | {
        "example": example
    }


def _explain_command(arguments: argparse.Namespace, pair: Suspect) -> str:
    sides = [f"{arguments.requests}#{line}" for line in (pair.first, pair.second)]
    words = ["mmroute", "explain", str(arguments.model), *sides]
    for name in ("model_id", "revision", "engine_args", "engine_config", "block_size"):
        if getattr(arguments, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    if arguments.backend != DEFAULT:
        words += ["--backend", arguments.backend]
    return shlex.join(words)


def _print(report: dict[str, Any]) -> None:
    print(f"{report['requests']:,} requests with an exact answer of {report['engine']}")
    for reason, refused in report["refused"].items():
        shown = ", ".join(map(str, refused["lines"]))
        more = ", ..." if refused["count"] > len(refused["lines"]) else ""
        print(f"{refused['count']:,} refused: {reason} (line {shown}{more})")
        if "message" in refused:
            print(f"  the first one: {refused['message']}")
    print(f"{report['tokens']:,} tokens of prompts")
    if report["output_tokens"]:
        print(f"{report['output_tokens']:,} tokens of answers")
    for modality, count in report["items"].items():
        print(f"{count:,} {modality}s")
    print(f"{report['blocks']:,} blocks of {report['block_size']} tokens")
    print(f"{report['different_blocks']:,} different blocks")
    print(f"{report['best_hit_rate']:.1%} of the tokens come again, the best hit rate")
    print("\none worker, by the size of its cache")
    _print_rows(
        ("BLOCKS", "HIT RATE"),
        [(f"{each['blocks']:,}", f"{each['hit_rate']:.1%}") for each in report["one_cache"]],
    )
    print(f"\n{report['workers']} workers of {report['worker_blocks']:,} blocks, by routing")
    _print_rows(
        ("ROUTING", "HIT RATE", "COMPUTED", "BUSIEST"),
        [
            (e["policy"], f"{e['hit_rate']:.1%}", f"{e['computed']:,}", f"{e['imbalance']:.2f}")
            for e in report["policies"]
        ],
    )
    print("\nCOMPUTED: tokens that were not cached")
    print("BUSIEST: tokens computed by the busiest worker, divided by the mean of all workers")
    too_large = report["policies"][0]["too_large"]
    if too_large:
        print(f"{too_large:,} requests have more blocks than a worker, and are never cached")
    if report["suspects"]:
        _print_losses(report)


def _print_losses(report: dict[str, Any]) -> None:
    print(f"\n{report['suspects']:,} requests share less than they could with an earlier one")
    if report["explained"] < report["suspects"]:
        print(f"the {report['explained']:,} that may have lost most were explained")
    _print_rows(
        ("CAUSE", "LOST TOKENS", "OF ALL", "REQUESTS"),
        [
            (
                e["cause"],
                f"{e['tokens']:,}",
                f"{e['tokens'] / report['tokens']:.1%}",
                f"{e['pairs']:,}",
            )
            for e in report["losses"]
        ],
    )
    for loss in report["losses"]:
        example = loss["example"]
        print(f"\n{loss['cause']}: {example['text']}")
        if example.get("was") or example.get("now"):
            print(f"  was: {example['was']}\n  is : {example['now']}")
        print(f"  {example['command']}")


def _print_rows(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table, indented."""
    print_table([(f"  {row[0]}", *row[1:]) for row in (names, *rows)])
