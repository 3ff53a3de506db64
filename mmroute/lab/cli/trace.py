"""``mmroute trace``: the hit rates that a trace of requests allows, by routing policy."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import tempfile
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, positive, require_extra
from mmroute.cli.engine_options import (
    MODEL_HELP,
    engine_arguments,
    load_normalizer,
)
from mmroute.cli.output import EXIT_FAILURE, failed, print_table, say, show_progress
from mmroute.engine import DEFAULT
from mmroute.errors import InexactError, Reason
from mmroute.lab.bench.throughput import cores
from mmroute.lab.traces.analysis import analyse, read_trace
from mmroute.lab.traces.report import Table, as_dict, cache_table, facts, loss_table, policy_table
from mmroute.lab.traces.simulation import FleetSize
from mmroute.lab.traces.sources import numbered_lines
from mmroute.lab.traces.suspects import Suspect
from mmroute.lab.traces.workers import ChunkFiles, Processes, chunks_of
from mmroute.normalizer import Normalizer
from mmroute.reuse.fast_paths import FastPaths

_EPILOG = """\
REQUESTS holds one request per line, in the order in which they came, as `mmroute blocks` takes
them; a line may say "session_id" (its conversation), "timestamp" (milliseconds) and
"output_length" (tokens of the answer). FILE.parquet has such fields as columns. Lines of Mooncake's
public traces ("input_length", "hash_ids") need no --model. Workers answer one request after the
other and evict as vLLM does.

  mmroute trace requests.jsonl --model DIR --workers 4 --blocks 20000

exit status: 0 simulated; 1 no line has an exact answer, or a process was lost; 2 bad usage
"""
_MAX_BLOCKS: Final = 1 << 16  # the default limit; a block takes some 200 bytes for each policy


def add_trace(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "trace",
        "the hit rate that a trace of requests allows, and that of each kind of routing",
        _trace,
        epilog=_EPILOG,
    )
    parser.add_argument("requests", metavar="REQUESTS", help="the trace, JSON Lines or Parquet")
    parser.add_argument("--model", metavar="MODEL", help=MODEL_HELP)
    engine_arguments(parser)
    parser.add_argument(
        "--block-size",
        metavar="N",
        type=positive,
        help="the engine's block size in tokens (default: as for `mmroute blocks`; 512 "
        "for Mooncake lines)",
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
        "--encoder-cache",
        metavar="N",
        type=positive,
        help="the size of each worker's encoder cache in features (default: the least that the "
        "engine has; a larger --max-num-batched-tokens in --engine-args raises it)",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=positive,
        default=len(cores()),
        help="the number of processes for a trace of more than 1,000 lines (default: one on each "
        "core)",
    )
    parser.add_argument(
        "--ray",
        action="store_true",
        help="answer the lines by Ray Data, on the cluster of RAY_ADDRESS or one of this machine",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="keep finished parts in this directory; the same command continues a stopped one",
    )
    parser.add_argument(
        "--show-text",
        action="store_true",
        help="show what prompts say: where examples differ, and why lines were refused",
    )


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.ray and arguments.checkpoint:
        arguments.parser.error("--ray keeps no --checkpoint")
    if arguments.ray:
        require_extra("ray", "ray")
    normalizer = None
    if arguments.model is not None:
        normalizer = load_normalizer(arguments, fast_paths=FastPaths(at_once=True))
        normalizer.stats()  # wait for its encoder, so that the first requests do not pay for it
    try:
        with contextlib.ExitStack() as stack:
            # Ray prints its messages to stdout.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            report = _report(arguments, normalizer, stack)
    except BrokenProcessPool:
        hint = "" if arguments.checkpoint else "; with --checkpoint it can go on"
        lost = ChildProcessError(
            f"a process ended early, perhaps because it needed more memory{hint}"
        )
        return failed(arguments, lost, EXIT_FAILURE)
    except (OSError, ValueError) as error:
        return failed(arguments, error)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0


def _report(
    arguments: argparse.Namespace, normalizer: Normalizer | None, stack: contextlib.ExitStack
) -> dict[str, Any]:
    path, block_size = arguments.requests, arguments.block_size
    if normalizer is None and _has_only_requests(path):
        raise ValueError("give --model: only Mooncake lines need none")
    directory = arguments.checkpoint or stack.enter_context(tempfile.TemporaryDirectory())
    files = ChunkFiles(Path(directory), _made_of(arguments, path))
    processes = stack.enter_context(Processes(arguments.processes, normalizer))
    if arguments.ray:
        from mmroute.lab.traces.trace_chunks import chunks_by_ray  # Ray

        answered = chunks_by_ray(path, normalizer, block_size)
        chunks = files.keep_all(answered, processes)
    else:
        chunks = files.read_all(chunks_of(numbered_lines(path)), block_size, processes)
    reading = read_trace(path, chunks, show_progress)
    if not reading.requests:
        if not reading.refused:
            raise InexactError(Reason.INVALID_REQUEST, f"{path} has no line")
        refused = ", ".join(f"{reason} {each.count}" for reason, each in reading.refused.items())
        reason, first = next(iter(reading.refused.items()))
        shown = first.message if arguments.show_text else "--show-text says why"
        shown = f"line {first.lines[0]}: {shown}"
        raise InexactError(Reason(reason), f"no line has an exact answer ({refused}); {shown}")
    share = min(_MAX_BLOCKS, reading.curve.different // (2 * arguments.workers))
    fleet = FleetSize(
        workers=arguments.workers,
        blocks=arguments.blocks or max(reading.largest, share),
        block_size=reading.block_size,
        encoder_tokens=arguments.encoder_cache
        or (normalizer.model.encoder_cache if normalizer else 0),
    )
    analysis = analyse(reading, fleet, processes, show_progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return as_dict(
        analysis,
        lambda pair: _explain_command(arguments, pair),
        engine=None if normalizer is None else normalizer.model.engine.release.label,
        show_text=arguments.show_text,
    )


def _has_only_requests(path: str) -> bool:
    """Whether a trace has lines, and none of them is in Mooncake's format."""
    has_lines = False
    for _, line in numbered_lines(path):
        if b'"hash_ids"' in line:
            return False
        has_lines = True
    return has_lines


def _made_of(arguments: argparse.Namespace, path: str) -> dict[str, Any]:
    names = ("model", "backend", "model_id", "revision", "engine_args", "engine_config", "engine",
             "block_size")  # fmt: skip
    made_of = {name: getattr(arguments, name) for name in names} | {"mmroute": version("mmroute")}
    if "://" in path:
        return made_of | {"trace": path}
    status = Path(path).stat()
    return made_of | {
        "trace": str(Path(path).resolve()),
        "trace_bytes": status.st_size,
        "trace_changed": status.st_mtime_ns,
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
    (name, count), *others = facts(report)
    print(f"{count} {name}" + (f" of {report['engine']}" if report["engine"] else ""))
    for reason, refused in report["refused"].items():
        shown = ", ".join(map(str, refused["lines"]))
        more = ", ..." if refused["count"] > len(refused["lines"]) else ""
        print(f"{refused['count']:,} refused: {reason} (line {shown}{more})")
        if "message" in refused:
            print(f"  the first one: {refused['message']}")
    for name, count in others:
        print(f"{count} {name}")
    costs = report["preprocessing_us"]
    if costs:
        say(
            f"{costs['mean']:,.0f} us of processor time for a request (half below "
            f"{costs['p50']:,.0f}, 99 of 100 below {costs['p99']:,.0f})"
        )
    print("\none worker, by the size of its cache")
    _print_table(cache_table(report))
    print(f"\n{report['workers']} workers of {report['worker_blocks']:,} blocks, by routing")
    _print_table(policy_table(report))
    print("\nNOT KEPT: tokens that had been computed, and were evicted or at another worker")
    print("COMPUTED: tokens that were not cached")
    print("BUSIEST: tokens computed by the busiest worker, divided by the mean of all workers")
    if report["items"]:
        print(
            "ENCODED: items whose features were neither in cached blocks nor in the encoder cache"
        )
        print("ENCODER HITS: items found in the encoder cache, of those looked up there")
    too_large = report["policies"][0]["too_large"]
    if too_large:
        print(f"{too_large:,} requests have more blocks than a worker, and are never cached")
    _print_losses(report)


def _print_losses(report: dict[str, Any]) -> None:
    if not report["suspects"]:
        return
    print(f"\n{report['suspects']:,} requests share less than they could with an earlier one")
    if report["explained"] < report["suspects"]:
        print(f"{report['explained']:,} were explained, drawn by what they lost; tokens are scaled")
    _print_table(loss_table(report))
    for loss in report["losses"]:
        example = loss["example"]
        print(f"\n{loss['cause']}: {example['text']}")
        if example.get("was") or example.get("now"):
            print(f"  was: {example['was']}\n  is : {example['now']}")
        print(f"  {example['command']}")


def _print_table(table: Table) -> None:
    """Print a table, indented."""
    columns, rows = table
    print_table([(f"  {row[0]}", *row[1:]) for row in [tuple(map(str.upper, columns)), *rows]])
