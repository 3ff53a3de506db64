"""``mmroute``: a thin face. Parse, call, print."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, NoReturn

from mmroute.block_hashes import Algorithm, none_hash
from mmroute.errors import MmrouteError
from mmroute.family import known_families
from mmroute.images.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.request_lines import Answer, answer_line, blocks_answer, tokens_answer
from mmroute.resolve import resolve_model

__all__ = ["main"]

_EXIT_FAILURE = 1
_EXIT_USAGE = 2
_ENCODERS = ("tokenizers", "mistral-common")  # their versions decide over IDs too
_STANDARD = "-"
_PROGRESS_EVERY = 1.0  # seconds
_COMMANDS = ("tokens", "blocks", "resolve", "families")

_MODEL_HELP = (
    "model directory, hub name (only configuration and tokenizer files are fetched), or "
    "pixtral-12b-2409, which needs no download"
)
_JSON_HELP = "machine-readable output, nothing cut (the answers to requests always are)"
_REQUESTS_HELP = """\
one request per input line:
  {"id": "a", "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text",
   "text": "What is this?"}]}], "images": [{"width": 640, "height": 480}]}
instead of "messages": "prompt" (text) or "prompt_token_ids". Also: "add_special_tokens",
"add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools",
"mm_processor_kwargs", "cache_salt", each as in the engine's API, but "add_special_tokens" is
false unless given (the completions API has true); and "lora": {"lora_name": "...", "lora_path":
"..."}, which a server knows by the request's "model". Other fields are ignored. An image part with
a data URL carries its own size; "images" holds the sizes of the others, in order.
"""
_TOKENS_ANSWERS = """
one answer per output line, in order:
  {"id": "a", "exact": true, "token_ids": [...], "placeholders": [{"offset": 2, "length": 1230}]}
   "embed_runs" in a placeholder: [[1, n], [0, 1], ...], where only some tokens get features
  {"id": "b", "exact": false, "reason": "image_refused", "message": "..."}
"""
_BLOCKS_ANSWERS = """
Hashes cover which images a request has. A data URL tells; for an entry of "images" give the
"uuid" that the engine gets as well. Where the engine's model string is not MODEL, give --model-id.

one answer per output line, in order:
  {"id": "a", "exact": true, "block_hashes": ["9f...", ...], "image_identities": ["ed...", ...],
   "image_identity_sources": ["content_hash", ...]}   ("uuid", "uuid_hash", "content_hash")
  {"id": "b", "exact": false, "reason": "image_identity_unknown", "message": "..."}
"""
_EXIT_STATUS = """
exit status: 0 every line was answered, exact or not; 1 failure; 2 bad usage
"""


if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[Any]  # noqa: SLF001 - argparse has no public name for it


class _Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for a mistyped command."""

    def error(self, message: str) -> NoReturn:
        if "invalid choice" in message:
            given = message.split("'")[1]
            near = difflib.get_close_matches(given, _COMMANDS, n=1)
            message += f" Did you mean {near[0]!r}?" if near else ""
        super().error(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the value is the exit status."""
    if None in (sys.stdin, sys.stdout):
        print("mmroute: standard input and output must be open", file=sys.stderr)
        return _EXIT_FAILURE
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except MmrouteError as error:
        print(f"mmroute: {error.reason}: {error}", file=sys.stderr)
        return _EXIT_FAILURE
    except BrokenPipeError:
        # The reader has gone; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_FAILURE
    except OSError as error:
        print(f"mmroute: {error}", file=sys.stderr)
        return _EXIT_FAILURE
    except KeyboardInterrupt:
        print("mmroute: interrupted", file=sys.stderr)
        return _EXIT_FAILURE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mmroute",
        description="The token IDs an inference engine will hold for a vision-language request, "
        "and the block hashes it will publish, from its text and the headers of its images.",
    )
    version = importlib.metadata.version("mmroute")
    parser.add_argument("--version", action="version", version=f"mmroute {version}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    tokens = _command(
        commands,
        "tokens",
        "requests in (JSON Lines), routing token IDs out",
        lambda arguments: _answer_requests(arguments, tokens_answer),
        epilog=_REQUESTS_HELP + _TOKENS_ANSWERS + _EXIT_STATUS,
    )
    _model_arguments(tokens)
    _request_arguments(tokens)

    blocks = _command(
        commands,
        "blocks",
        "requests in (JSON Lines), the block hashes that vLLM publishes out",
        _blocks,
        epilog=_REQUESTS_HELP + _BLOCKS_ANSWERS + _EXIT_STATUS,
    )
    _model_arguments(blocks)
    _request_arguments(blocks)
    blocks.add_argument(
        "--algorithm",
        choices=[algorithm.value for algorithm in Algorithm],
        default=Algorithm.SHA256.value,
        help="the engine's --prefix-caching-hash-algo (default: %(default)s)",
    )
    blocks.add_argument(
        "--block-size",
        metavar="N",
        type=_positive,
        default=16,
        help="the engine's block size in tokens (default: %(default)s)",
    )
    blocks.add_argument(
        "--hash-seed",
        metavar="SEED",
        help="the engine's PYTHONHASHSEED, which all algorithms cover (default: it runs without "
        "one, which the xxhash algorithms answer with a random seed)",
    )

    resolve = _command(
        commands,
        "resolve",
        "what was resolved for a model, and from which file and field",
        _resolve,
    )
    _model_arguments(resolve)

    _command(commands, "families", "what is supported, checked on what", _families)
    return parser


def _command(
    commands: _Commands,
    name: str,
    help_text: str,
    run: Callable[[argparse.Namespace], int],
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)
    parser.set_defaults(run=run)
    return parser


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    parser.add_argument("--backend", default="vllm", help="engine to match (default: vllm)")
    parser.add_argument(
        "--model-id",
        metavar="NAME",
        help="the engine's own model string, which its image identities cover (default: MODEL)",
    )
    parser.add_argument("--revision", help="hub branch, tag or commit")


def _request_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", metavar="FILE", default="-", help="requests; - is stdin")
    parser.add_argument("--output", metavar="FILE", default="-", help="answers; - is stdout")
    parser.add_argument(
        "--image-host",
        metavar="HOST",
        action="append",
        default=[],
        help="follow links to images on this host (repeatable; *.example.com; * for any public "
        "one); without it, their sizes must be in images",
    )
    parser.add_argument(
        "--image-network",
        metavar="NETWORK",
        action="append",
        default=[],
        help="connect to private addresses of this network as well, such as 10.1.0.0/16",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, found {text!r}")
    return int(text)


def _blocks(arguments: argparse.Namespace) -> int:
    algorithm, seed = arguments.algorithm, arguments.hash_seed
    try:
        none_hash(algorithm, seed)
    except ValueError as error:
        print(f"mmroute: {error} (--hash-seed)", file=sys.stderr)
        return _EXIT_USAGE
    answer = functools.partial(
        blocks_answer, algorithm=algorithm, block_size=arguments.block_size, seed=seed
    )
    return _answer_requests(arguments, answer)


def _answer_requests(arguments: argparse.Namespace, answer: Answer) -> int:
    if _same_file(arguments.input, arguments.output):
        print("mmroute: --input and --output are the same file", file=sys.stderr)
        return _EXIT_USAGE
    try:
        links = _links(arguments)
    except ValueError as error:
        print(f"mmroute: {error} (--image-host, --image-network)", file=sys.stderr)
        return _EXIT_USAGE
    with contextlib.ExitStack() as files:
        try:
            requests = _requests(files, arguments.input)
            normalizer = Normalizer.from_pretrained(
                arguments.model,
                backend=arguments.backend,
                model_id=arguments.model_id,
                revision=arguments.revision,
                links=links,
            )
            answers = _answers(files, arguments.output)
        except OSError as error:
            print(f"mmroute: cannot open a file: {error}", file=sys.stderr)
            return _EXIT_USAGE
        for number, line in _with_progress(requests):
            found = answer_line(line, normalizer, answer)
            if found["id"] is None:
                found["line"] = number
            answers.write(json.dumps(found) + "\n")
            answers.flush()  # a router that runs this beside itself waits for each answer
    return 0


def _links(arguments: argparse.Namespace) -> ImageLinks | None:
    hosts, networks = tuple(arguments.image_host), tuple(arguments.image_network)
    if networks and not hosts:
        raise ValueError("private networks are for links, and no host of links is allowed")
    return ImageLinks(hosts=hosts, networks=networks) if hosts else None


def _same_file(first: str, second: str) -> bool:
    both = _STANDARD not in (first, second)
    return both and os.path.exists(second) and os.path.samefile(first, second)  # noqa: PTH110, PTH121 - text in, truth out


def _requests(files: contextlib.ExitStack, path: str) -> IO[bytes]:
    # Bytes: a line that is not UTF-8 is answered like any other bad line.
    if path == _STANDARD:
        return sys.stdin.buffer
    return files.enter_context(open(path, "rb"))  # noqa: PTH123 - as below


def _answers(files: contextlib.ExitStack, path: str) -> IO[str]:
    if path == _STANDARD:
        return sys.stdout
    return files.enter_context(open(path, "w", encoding="ascii", newline="\n"))  # noqa: PTH123 - the path is a string


def _with_progress(lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines and their numbers; with a count on stderr while someone watches it."""
    watched = sys.stderr.isatty() and not sys.stdout.isatty()
    shown_at = time.monotonic()
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        yield number, line
        count += 1
        if watched and time.monotonic() - shown_at > _PROGRESS_EVERY:
            print(f"\r{count} requests", end="", file=sys.stderr)
            shown_at = time.monotonic()
    if watched:
        print(f"\r{count} requests", file=sys.stderr)


def _resolve(arguments: argparse.Namespace) -> int:
    model = resolve_model(
        arguments.model,
        backend=arguments.backend,
        model_id=arguments.model_id,
        revision=arguments.revision,
    )
    head = {
        "model": model.name,
        "model_id": model.model_id,
        "commit": model.commit,
        "family": model.family.family,
        "backend": f"{model.backend.name} {model.backend.version}",
        "libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _ENCODERS),
    }
    values = [{"name": o.name, "value": o.value, "source": o.source} for o in model.origins]
    if arguments.json:
        print(json.dumps(head | {"values": values}, ensure_ascii=False))
        return 0
    for name, value in head.items():
        if value is not None:
            print(f"{name:12} {value}")
    print()
    rows = [("VALUE", "IS", "FROM")]
    for origin in model.origins:
        shown = "" if origin.value is None else json.dumps(origin.value, ensure_ascii=False)
        limit = 48
        shown = shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
        rows.append((origin.name, shown, origin.source))
    _print_table(rows)
    return 0


def _families(arguments: argparse.Namespace) -> int:
    specs = known_families()
    if arguments.json:
        listed = [
            {
                "family": spec.family,
                "title": spec.title,
                "match": {str(field): list(values) for field, values in spec.match.items()},
                "images": spec.geometry is not None,
                "geometry": spec.geometry.name if spec.geometry else None,
                "checked": {engine: list(v) for engine, v in spec.checked.items()},
            }
            for spec in specs
        ]
        print(json.dumps(listed, ensure_ascii=False))
        return 0
    rows = [("FAMILY", "MODELS", "GEOMETRY", "CHECKED ON")]
    for spec in specs:
        checked = ", ".join(f"{engine} {' '.join(v)}" for engine, v in spec.checked.items())
        geometry = spec.geometry.name if spec.geometry else "text only"
        rows.append((spec.family, spec.title, geometry, checked))
    _print_table(rows)
    return 0


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
