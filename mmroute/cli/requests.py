"""``mmroute tokens`` and ``mmroute blocks``: requests in, answers out."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from mmroute.answering.hash_forms import BlockForm, HashForm
from mmroute.answering.routing import Routing
from mmroute.cli.arguments import (
    Commands,
    add_command,
    encoder_argument,
    image_links,
    link_arguments,
    positive,
)
from mmroute.cli.engine_options import (
    engine_settings,
    load_normalizer,
    model_arguments,
)
from mmroute.cli.output import failed, say, with_progress
from mmroute.engine import DEFAULT, EngineSettings, find_engine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, invalid, quoted
from mmroute.hashing import Algorithm, none_hash
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.requests.items import Modality
from mmroute.requests.lines import json_object, numbered, request_of
from mmroute.requests.request import Request
from mmroute.reuse.fast_paths import FastPaths

Answer: TypeAlias = Callable[[Routing], dict[str, Any]]
"""The fields of an exact answer, without its id."""


def answer_line(
    line: str | bytes, answer_of: Callable[[Request], Routing], answer: Answer
) -> dict[str, Any]:
    """The answer to one line, as values for JSON. A bad line has an inexact answer."""
    line_id: str | int | None = None
    try:
        value = json_object(line)
        own_id = value.get("id")
        if own_id is not None and not isinstance(own_id, str) and type(own_id) is not int:
            raise invalid(f"id must be a text or an integer, found {quoted(own_id)}")
        line_id = own_id
        routing = answer_of(request_of(value))
    except InexactError as inexact:
        routing = Routing(reason=inexact.reason, message=str(inexact))
    return {"id": line_id, **_answered(routing, answer)}


def answer_line_for_each(
    line: str | bytes, fleet: Mapping[str, Normalizer], answer: Answer
) -> dict[str, Any]:
    """The answers to one line for several kinds of workers, by their names."""
    first, *others = fleet.values()
    routings: list[Routing] = []

    def answer_of(request: Request) -> Routing:
        routings.extend(first.answer_with(others, request))
        return next(filter(attrgetter("exact"), routings), routings[0])

    def answer_all(_: Routing) -> dict[str, Any]:
        each = zip(fleet, routings, strict=True)
        return {"backends": {name: _answered(routing, answer) for name, routing in each}}

    return answer_line(line, answer_of, answer_all)


def _answered(routing: Routing, answer: Answer) -> dict[str, Any]:
    try:
        if routing.reason is None:
            return {"exact": True, **answer(routing)}
        reason, message = routing.reason, routing.message
    except InexactError as inexact:
        reason, message = inexact.reason, str(inexact)
    return {"exact": False, "reason": reason.value, "message": message}


def tokens_answer(routing: Routing) -> dict[str, Any]:
    """The fields of an answer of ``mmroute tokens``: token IDs, and the ranges of items."""
    placeholders = [
        {"offset": p.offset, "length": p.length}
        | ({} if p.modality is Modality.IMAGE else {"modality": p.modality.value})
        | ({"embed_runs": [[int(e), n] for e, n in p.embed_runs]} if p.embed_runs else {})
        for p in routing.placeholders
    ]
    return {"token_ids": routing.token_ids.tolist(), "placeholders": placeholders}


def blocks_answer(routing: Routing, form: BlockForm) -> dict[str, Any]:
    """The fields of an answer of ``mmroute blocks``: block hashes, and the images they cover."""
    hashes = form.of(routing)
    identities = [identity for identity in routing.identities if identity is not None]
    return {
        **hashes,
        "image_identities": [identity.value for identity in identities],
        "image_identity_sources": [identity.source.value for identity in identities],
        **({"model_id": routing.hashing.settings.model_id} if routing.covers_model_id else {}),
    }


_STANDARD = "-"

_REQUESTS_HELP = """\
one request per input line:
  {"id": "a", "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text",
   "text": "What is this?"}]}], "images": [{"width": 640, "height": 480}]}

  "messages", or "prompt" (text), or "prompt_token_ids"
  "images": [{"width", "height"}], "videos": [{"width", "height", "num_frames", "fps"}],
      "audios": [{"num_samples", "sampling_rate"}]: of the items that the messages do not carry
      themselves (as data URLs do), in order; each may have the client's "uuid"
  as in the engine's API: "add_generation_prompt", "continue_final_message", "tools",
      "chat_template_kwargs", "reasoning_effort", "documents", "mm_processor_kwargs",
      "media_io_kwargs", "truncate_prompt_tokens", "cache_salt"
  "add_special_tokens": false unless given (the completions API has true)
  "lora": {"lora_name": "...", "lora_path": "..."}: a server tells it from the request's "model"

Other fields are ignored, unless they look like a mistyped one. `mmroute docs requests` has more
about each, `mmroute docs reasons` what to do about a line without an exact answer.
"""
_TOKENS_ANSWERS = """
one answer per output line, in order:
  {"id": "a", "exact": true, "token_ids": [...], "placeholders": [{"offset": 2, "length": 1230}]}
   in a placeholder: "modality", if it is no image; "embed_runs": [[1, n], [0, 1], ...], if only
   some of its tokens get features
  {"id": "b", "exact": false, "reason": "image_refused", "message": "..."}
"""
_BLOCKS_ANSWERS = """
Hashes cover which images, videos and audio a request has. A data URL tells; an entry of "images",
"videos" or "audios" needs the "uuid" that the engine gets as well. Hashes of such requests also
cover the engine's model string: where it is not MODEL, give --model-id.

one answer per output line, in order:
  {"id": "a", "exact": true, "block_hashes": ["9f...", ...], "image_identities": ["ed...", ...],
   "image_identity_sources": ["content_hash", ...]}   ("uuid", "uuid_hash", "content_hash")
  {"id": "b", "exact": false, "reason": "image_identity_unknown", "message": "..."}
with several --backend, under the name of each:
  {"id": "a", "exact": true, "backends": {"vllm": {"exact": true, "block_hashes": [...], ...},
   "vllm==0.28": {"exact": false, "reason": "...", "message": "..."}}}
"""
_EXIT_STATUS = """
exit status: 0 every line was answered, exact or not; 1 failure; 2 bad usage; 3 with
--fail-on-inexact, a line has no exact answer. A last line on stderr counts such lines by reason.
"""
_EXIT_INEXACT: Final = 3


def add_tokens(commands: Commands) -> None:
    """Add the command."""
    tokens = add_command(
        commands,
        "tokens",
        "requests in (JSON Lines), routing token IDs out",
        _tokens,
        epilog=_REQUESTS_HELP + _TOKENS_ANSWERS + _EXIT_STATUS,
    )
    model_arguments(tokens)
    _request_arguments(tokens)


def _tokens(arguments: argparse.Namespace) -> int:
    return _answer_requests(arguments, engine_settings(arguments), tokens_answer)


def add_blocks(commands: Commands) -> None:
    """Add the command."""
    blocks = add_command(
        commands,
        "blocks",
        "requests in (JSON Lines), the block hashes that the engine publishes out",
        _blocks,
        epilog=_REQUESTS_HELP + _BLOCKS_ANSWERS + _EXIT_STATUS,
    )
    model_arguments(blocks, several=True)
    _request_arguments(blocks)
    blocks.add_argument(
        "--algorithm",
        choices=[algorithm.value for algorithm in Algorithm],
        help="the engine's --prefix-caching-hash-algo (default: that of --engine-args, else "
        "sha256)",
    )
    blocks.add_argument(
        "--block-size",
        metavar="N",
        type=positive,
        help="the engine's block size in tokens (default: that of --engine-args, else the engine's "
        "own default; hybrid models have none)",
    )
    blocks.add_argument(
        "--hashes",
        choices=[form.value for form in HashForm],
        default=HashForm.HEX.value,
        help="hex: whole; int: the 64 bits that the engine's events have (vLLM's unless "
        "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0); dynamo: local_hashes and sequence_hashes of "
        "Dynamo's router. A JSON reader whose numbers are doubles rounds those of int and dynamo "
        "(default: %(default)s)",
    )
    blocks.add_argument(
        "--hash-seed",
        metavar="SEED",
        help="the engine's PYTHONHASHSEED, which all algorithms cover (default: that of "
        "--engine-args, else none; the xxhash algorithms need one)",
    )


def _request_arguments(parser: argparse.ArgumentParser) -> None:
    encoder_argument(parser)
    parser.add_argument("--input", metavar="FILE", default="-", help="requests (default: -, stdin)")
    parser.add_argument(
        "--output", metavar="FILE", default="-", help="answers (default: -, stdout)"
    )
    parser.add_argument(
        "--fail-on-inexact",
        action="store_true",
        help="exit status 3 where a line has no exact answer",
    )
    link_arguments(parser.add_argument_group("links"))


def _blocks(arguments: argparse.Namespace) -> int:
    settings = engine_settings(arguments)
    own = settings if isinstance(settings, VllmSettings) else VllmSettings()
    algorithm = arguments.algorithm or own.hash_algorithm or Algorithm.SHA256
    seed = own.hash_seed if arguments.hash_seed is None else arguments.hash_seed
    try:
        none_hash(algorithm, seed)
    except ValueError as error:
        return failed(arguments, error)
    form = BlockForm(algorithm, arguments.block_size, seed, HashForm(arguments.hashes))
    answer = functools.partial(blocks_answer, form=form)
    return _answer_requests(arguments, settings, answer)


def _answer_requests(
    arguments: argparse.Namespace, settings: EngineSettings, answer: Answer
) -> int:
    if _same_file(arguments.input, arguments.output):
        return failed(arguments, "--input and --output are the same file")
    try:
        links = image_links(arguments)
    except ValueError as error:
        return failed(arguments, f"--image-host, --image-network: {error}")
    with contextlib.ExitStack() as files:
        try:
            requests = _requests(files, arguments.input)
            fleet = _fleet(arguments, settings, links)
            answers = _answers(files, arguments.output)
        except OSError as error:
            return failed(arguments, f"cannot open a file: {error}")
        if len(fleet) > 1:
            answer_one = functools.partial(answer_line_for_each, fleet=fleet, answer=answer)
        else:
            (normalizer,) = fleet.values()
            answer_one = functools.partial(answer_line, answer_of=normalizer.answer, answer=answer)
        watched = sys.stderr.isatty() and not sys.stdout.isatty()
        inexact: Counter[str] = Counter()
        number = 0
        for number, line in with_progress(numbered(requests), "requests", watched=watched):
            answered = answer_one(line)
            if answered["id"] is None:
                answered["line"] = number
            if not answered["exact"]:
                inexact[answered["reason"]] += 1
            answers.write(json.dumps(answered) + "\n")
            answers.flush()  # a router that runs this as a child process waits for each answer
    if not number:
        say(f"{'stdin' if arguments.input == _STANDARD else arguments.input} has no request lines")
    if inexact:
        counted = ", ".join(f"{reason} {count}" for reason, count in inexact.most_common())
        say(f"{inexact.total()} without an exact answer: {counted}")
    return _EXIT_INEXACT if inexact and arguments.fail_on_inexact else 0


def _fleet(
    arguments: argparse.Namespace, settings: EngineSettings, links: ImageLinks | None
) -> dict[str, Normalizer]:
    """The normalizer of each backend, by its name."""
    named = arguments.backend
    names = dict.fromkeys([named] if isinstance(named, str) else named or [DEFAULT])
    first, *others = names
    normalizer = load_normalizer(
        arguments,
        settings,
        backend=first,
        links=links,
        fast_paths=FastPaths(encoder=arguments.encoder),
    )
    fleet = {first: normalizer}
    for name in others:
        kind = type(find_engine(name).settings)
        # Those of a frontend are a kind of its engine's; other engines do not take the settings.
        takes = isinstance(settings, kind) or issubclass(kind, type(settings))
        own = settings if takes else None
        fleet[name] = normalizer.matching(
            name,
            model_id=arguments.model_id,
            engine_settings=own,
            accept_version=arguments.accept_version,
        )
    return fleet


def _same_file(first: str, second: str) -> bool:
    both = _STANDARD not in (first, second)
    return both and Path(second).exists() and Path(first).samefile(second)


def _requests(files: contextlib.ExitStack, path: str) -> IO[bytes]:
    # It is opened in binary mode, so that a line that is not UTF-8 gets an answer of its own.
    if path == _STANDARD:
        if sys.stdin.isatty():
            say("reading request lines from the terminal; Ctrl-D ends them, --help shows one")
        return sys.stdin.buffer
    return files.enter_context(Path(path).open("rb"))


def _answers(files: contextlib.ExitStack, path: str) -> IO[str]:
    if path == _STANDARD:
        return sys.stdout
    return files.enter_context(Path(path).open("w", encoding="ascii", newline="\n"))
