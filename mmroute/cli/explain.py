"""``mmroute explain``: why a request does not find the blocks of another one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from mmroute.cli.common import (
    EXIT_USAGE,
    Commands,
    add_command,
    load_normalizer,
    model_arguments,
)
from mmroute.engines.settings import EngineSettings
from mmroute.errors import InexactError
from mmroute.hashing import BlockHashes
from mmroute.request import Request
from mmroute.request_lines import json_object, request_of
from mmroute.traces.explain import Explanation, Side, explain, shared_blocks
from mmroute.traces.requests import comparable_hashes

__all__ = ["add_explain"]

_EPILOG = """\
FIRST and SECOND are files of request lines, as `mmroute blocks` takes them. FILE:ID is the
request with that "id" in a file of several. Without an ID, SECOND is the last request of its file,
and FIRST the request of its file that shares most blocks with it.

  mmroute explain DIR trace.jsonl:17 trace.jsonl:18
  mmroute explain DIR trace.jsonl request.json --block-size 32

exit status: 0 the requests share all the blocks they can; 3 they do not; 1 failure; 2 bad usage
"""
_EXIT_APART = 3


def add_explain(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explain",
        "why one request does not find the cached blocks of another one",
        _explain,
        epilog=_EPILOG,
    )
    model_arguments(parser)
    parser.add_argument("first", metavar="FIRST", help="the request whose blocks a worker has")
    parser.add_argument("second", metavar="SECOND", help="the request that misses")
    parser.add_argument("--block-size", metavar="N", type=int, help="the engine's, in tokens")
    parser.add_argument(
        "--first-engine-args",
        metavar="ARGS",
        help="the command line of the engine that answered FIRST, where it is another one",
    )


def _explain(arguments: argparse.Namespace) -> int:
    normalizer = load_normalizer(arguments)
    answer_first = normalizer.answer
    if arguments.first_engine_args is not None:
        settings = EngineSettings.from_args(arguments.first_engine_args)
        answer_first = load_normalizer(arguments, settings).answer

    def hashes(request: Request) -> BlockHashes:
        return comparable_hashes(answer_first(request), arguments.block_size)

    try:
        second = list(_requests(arguments.second))[-1]
        known = hashes(second)
        candidates = [request for request in _requests(arguments.first) if request != second]
        first = max(candidates, key=lambda r: shared_blocks(hashes(r), known), default=second)
    except (OSError, ValueError) as error:
        print(f"mmroute: {error}", file=sys.stderr)
        return EXIT_USAGE
    found = explain(
        first,
        second,
        normalizer.answer,
        normalizer.model.tokenizer.decode,
        first_answer_of=None if arguments.first_engine_args is None else answer_first,
        block_size=arguments.block_size,
    )
    print(json.dumps(dataclasses.asdict(found)) if arguments.json else _as_text(found))
    return 0 if found.cause is None else _EXIT_APART


def _requests(source: str) -> Iterator[Request]:
    """The requests of FILE, or the one of FILE:ID.

    Raises:
        ValueError: there is none.
        OSError: the file cannot be read.
    """
    path, wanted = source, None
    if not Path(source).exists() and ":" in source:
        path, _, wanted = source.rpartition(":")
    found = False
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json_object(line)
            if wanted is None or str(value.get("id")) == wanted:
                found = True
                yield request_of(value)
        except InexactError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if not found:
        raise ValueError(
            f"{path} has no request" + ("" if wanted is None else f" with id {wanted}")
        )


def _as_text(found: Explanation) -> str:
    sizes = f"{found.first.num_blocks} and {found.second.num_blocks} blocks"
    lines = [f"{found.shared_blocks} blocks shared, of {sizes}"]
    if found.block is not None:
        where = "" if found.token is None else f"; the first other token is number {found.token}"
        lines.append(f"first other block: {found.block}{where}")
        lines += [_strip("first ", found.first), _strip("second", found.second)]
        lines.append(f"cause: {found.cause}: {found.text}")
        lines.append(f"lost by it: {found.lost_blocks} blocks")
    return "\n".join(lines)


def _strip(name: str, side: Side) -> str:
    return f"  {name}: {side.before!r} | {side.after!r}"
