"""``mmroute explain``: why a request does not find the blocks of another one."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from mmroute.cli.arguments import Commands, add_command, positive
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import failed, say
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, Reason
from mmroute.hashing import BlockHashes
from mmroute.lab.parity.differences import num_same
from mmroute.lab.traces.explain import Explanation, Side, explain
from mmroute.lab.traces.requests import comparable_hashes, numbered_lines, requests_of
from mmroute.requests.lines import json_object, request_of
from mmroute.requests.request import Request

_EPILOG = """\
FIRST and SECOND are files of request lines, as `mmroute blocks` takes them. FILE:ID is the
request with that "id" in a file of several, FILE#LINE the one of a line. With neither, SECOND is
the last request of its file, and FIRST the request of its file that shares most blocks with it.

  mmroute explain DIR trace.jsonl:17 trace.jsonl:18
  mmroute explain DIR trace.jsonl request.json --block-size 32

exit status: 0 the requests share all the blocks they can; 3 they do not, or one has no full block;
1 failure; 2 bad usage
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
    parser.add_argument(
        "--block-size",
        metavar="N",
        type=positive,
        help="the engine's block size in tokens (default: as for `mmroute blocks`)",
    )
    parser.add_argument(
        "--first-engine-args",
        metavar="ARGS",
        help="the command line of the engine that answered FIRST, where it is another one",
    )


def _explain(arguments: argparse.Namespace) -> int:
    normalizer = load_normalizer(arguments)
    answer_first = normalizer.answer
    if arguments.first_engine_args is not None:
        settings = VllmSettings.from_args(arguments.first_engine_args)
        answer_first = load_normalizer(arguments, settings).answer

    def hashes(request: Request) -> BlockHashes:
        return comparable_hashes(answer_first(request), arguments.block_size)

    refused: Counter[str] = Counter()
    try:
        second = list(requests_of(*_parts(arguments.second)))[-1]
        first = _nearest(arguments.first, second, hashes, refused)
    except (OSError, ValueError) as error:
        return failed(arguments, error)
    if refused:
        counted = ", ".join(f"{reason} {count}" for reason, count in refused.most_common())
        say(f"left out of {arguments.first}: {counted}")
    if first is None:
        reason = Reason(next(iter(refused), Reason.INVALID_REQUEST))
        raise InexactError(reason, f"no line of {arguments.first} has an exact answer")
    explanation = explain(
        first,
        second,
        normalizer.answer,
        normalizer.model.tokenizer,
        first_answer_of=None if arguments.first_engine_args is None else answer_first,
        block_size=arguments.block_size,
    )
    print(json.dumps(dataclasses.asdict(explanation)) if arguments.json else _as_text(explanation))
    if explanation.cause is None and not explanation.text:
        return 0
    return _EXIT_APART


def _parts(source: str) -> tuple[str, str | None, int | None]:
    """The file, and the ID or the line number in it, if one is given."""
    if not Path(source).exists():
        path, mark, line = source.rpartition("#")
        if mark and line.isdecimal():
            return path, None, int(line)
        path, mark, wanted = source.rpartition(":")
        if mark:
            return path, wanted, None
    return source, None, None


def _nearest(
    source: str, second: Request, hashes: Callable[[Request], BlockHashes], refused: Counter[str]
) -> Request | None:
    """The request that is named, or the one of a trace that shares most blocks with `second`.

    Lines of a trace without an exact answer are counted by reason in `refused`.
    """
    path, wanted, line = _parts(source)
    if wanted is not None or line is not None:
        return next(requests_of(path, wanted, line))
    known = hashes(second)
    nearest, most = None, -1
    for _, text in numbered_lines(path):
        try:
            request = request_of(json_object(text))
            shared = -1 if request == second else num_same(hashes(request), known)
        except InexactError as error:
            refused[error.reason] += 1
            continue
        if nearest is None or shared > most:
            nearest, most = request, shared
    return nearest


def _as_text(explanation: Explanation) -> str:
    sizes = f"{explanation.first.num_blocks} and {explanation.second.num_blocks} blocks"
    lines = [f"{explanation.shared_blocks} blocks shared, of {sizes}"]
    if explanation.cause is None and explanation.text:
        lines.append(explanation.text)
    if explanation.block is not None:
        if explanation.token is None:
            lines.append(f"first block that differs: {explanation.block}; no token ID differs")
        else:
            where = f"first token that differs: {explanation.token}; both counted from 0"
            lines.append(f"first block that differs: {explanation.block}; {where}")
            lines += [_strip("first ", explanation.first), _strip("second", explanation.second)]
        lines.append(f"cause: {explanation.cause}: {explanation.text}")
        if explanation.was or explanation.now:
            lines += [f"  was: {explanation.was}", f"  is : {explanation.now}"]
        lines.append(f"lost by it: {explanation.lost_blocks} blocks")
    return "\n".join(lines)


def _strip(name: str, side: Side) -> str:
    return f"  {name}: {side.before!r} | {side.after!r}"
