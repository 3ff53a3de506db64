"""``mmroute encode`` and ``mmroute decode``: one text, with a tokenizer of any format."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.output import EXIT_FAILURE, failed
from mmroute.text.cli.strip import print_notes, print_strip
from mmroute.text.loading import load_tokenizer

_SOURCE_HELP = (
    "tokenizer file (tokenizer.json, tokenizer.model, tekken.json, *.tiktoken, vocab.json), "
    "directory, module:Class, OpenAI model name, or hub name"
)
_ENCODE_EXAMPLES = """\
examples:
  mmroute encode gpt-4o "Hello, world"
  mmroute encode gpt-4o "Hello, world" --strip
  mmroute encode ./Qwen2.5-VL-3B-Instruct --input prompt.txt --json
  mmroute encode gpt-4o --input - < prompt.txt | mmroute decode gpt-4o -

The IDs stand on one line. Where no engine's IDs are promised, notes on stderr say whose these are.

exit status: 0 encoded; 1 failure; 2 bad usage
"""
_DECODE_EXAMPLES = """\
examples:
  mmroute decode gpt-4o 13225 11 2375
  echo "[151644, 872]" | mmroute decode ./Qwen2.5-VL-3B-Instruct -

Bytes that are no UTF-8 become U+FFFD.

exit status: 0 decoded; 1 failure; 2 bad usage
"""


def add_encode(commands: Commands) -> None:
    """Add the command."""
    encode = add_command(
        commands, "encode", "token IDs of one text, by any tokenizer", _encode, _ENCODE_EXAMPLES
    )
    _source_arguments(encode)
    encode.add_argument("text", metavar="TEXT", nargs="?", help="the text")
    encode.add_argument(
        "--input", metavar="FILE", help="take all of a file as the text; - is stdin"
    )
    encode.add_argument(
        "--add-special-tokens",
        action="store_true",
        help="add the tokens that the tokenizer puts around a sequence, such as BOS",
    )
    encode.add_argument(
        "--strip",
        action="store_true",
        help="show the text as a strip of its tokens, and their places in it (in colours at a "
        "terminal, unless NO_COLOR is set)",
    )


def add_decode(commands: Commands) -> None:
    """Add the command."""
    decode = add_command(
        commands, "decode", "the text of token IDs, by any tokenizer", _decode, _DECODE_EXAMPLES
    )
    _source_arguments(decode)
    decode.add_argument("ids", metavar="ID", nargs="+", help="token IDs; - reads them from stdin")
    decode.add_argument(
        "--skip-special-tokens", action="store_true", help="leave special tokens out"
    )


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help=_SOURCE_HELP)
    parser.add_argument("--revision", help="hub branch, tag or commit")


def _encode(arguments: argparse.Namespace) -> int:
    if (arguments.text is None) == (arguments.input is None):
        return failed(arguments, "give either TEXT or --input FILE")
    text, path = arguments.text, arguments.input
    try:
        if path is not None:
            text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode()
    except UnicodeDecodeError as error:
        return failed(arguments, f"{arguments.input} is not UTF-8: {error}", EXIT_FAILURE)
    except OSError as error:
        return failed(arguments, f"cannot open a file: {error}")
    tokenizer = load_tokenizer(arguments.source, revision=arguments.revision)
    specials = arguments.add_special_tokens
    try:
        ids = tokenizer.encode(text, add_special_tokens=specials).tolist()
    except ValueError as error:  # an argument that was not UTF-8 holds lone surrogates
        return failed(arguments, f"the text cannot be encoded: {error}", EXIT_FAILURE)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    offsets = tokenizer.offsets(text, add_special_tokens=specials)
    if arguments.json:
        values = {"token_ids": ids, "tokens": tokens, "offsets": offsets}
        print(json.dumps(values | {"notes": list(tokenizer.notes)}, ensure_ascii=False))
        return 0
    print_notes(tokenizer)
    if arguments.strip:
        print_strip(text, ids, tokens, offsets)
    else:
        print(*ids)
    return 0


def _decode(arguments: argparse.Namespace) -> int:
    try:
        ids = _ids_of(arguments.ids)
    except ValueError as error:
        return failed(arguments, error)
    tokenizer = load_tokenizer(arguments.source, revision=arguments.revision)
    try:
        text = tokenizer.decode(ids, skip_special_tokens=arguments.skip_special_tokens)
    except ValueError as error:
        return failed(arguments, error, EXIT_FAILURE)
    if arguments.json:
        print(json.dumps({"text": text, "notes": list(tokenizer.notes)}, ensure_ascii=False))
        return 0
    print_notes(tokenizer)
    print(text)
    return 0


def _ids_of(words: list[str]) -> list[int]:
    """The token IDs in arguments, or on stdin: a JSON list, or numbers with spaces or commas."""
    entries: list[object] = list(words)
    if words == ["-"]:
        read = sys.stdin.read().strip()
        entries = list(_json(read) if read.startswith("[") else read.replace(",", " ").split())
    ids = [int(each) if isinstance(each, str) and each.isdecimal() else each for each in entries]
    wrong = next((each for each in ids if type(each) is not int or each < 0), None)
    if wrong is not None:
        raise ValueError(f"a token ID must be a number of at least 0, found {wrong!r}")
    return [each for each in ids if isinstance(each, int)]


def _json(text: str) -> list[object]:
    try:
        entries: list[object] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"an argument that begins with [ must be a JSON list of token IDs: {error}"
        ) from error
    return entries
