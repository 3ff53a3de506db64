"""Parses a command line of SGLang's server, as its own parser does.

Source: SGLang 0.5.23 ``srt/server_args.py`` (`prepare_server_args`), ``cli/serve.py``,
``srt/utils/server_args_config_parser.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn

from mmroute.engines.sglang.lists import listed, read_versions
from mmroute.engines.shell_words import COMMENT, UNEXPANDED, read_yaml, shell_words, wrong
from mmroute.errors import ModelError, Reason, did_you_mean, malformed, quoted

_OPTIONS: Final = "launch_options"
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BEFORE: Final = re.compile(r"exec|env|export|nohup|sudo|uv|run|;|&&|-[mu]|(\S*/)?python[0-9.]*")
_STARTS: Final = re.compile(r"(\S*/)?(sglang|smg)|sglang(_router)?\.\S+")
_MODULE: Final = "sglang.launch_server"
_PREFIXES: Final = "kMGT"
_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)(?:([kMGT])|([KMGT])i)")
# Options of earlier versions, which stand in public recipes.
_GONE: Final = {
    "--nsa-prefill-backend": "it is --dsa-prefill-backend now",
    "--nsa-decode-backend": "it is --dsa-decode-backend now",
    "--mamba-scheduler-strategy": "it is --mamba-radix-cache-strategy now",
    "--keep-mm-feature-on-device": "it is gone since 0.5.21",
    "--mm-max-concurrent-calls": "it is gone",
    "--mm-per-request-timeout": "it is gone",
    "--collect-tokens-histogram": "it is gone",
}


class LaunchCommand(NamedTuple):
    """The command with which a server was started."""

    environment: Mapping[str, str]  # the variables in front of it
    options: Mapping[str, Any]  # those that are given, by their destination: True for a flag


def starts_sglang(command: str) -> bool:
    """Whether the first word of a command is a program of SGLang."""
    return bool(_STARTS.fullmatch(command))


def reading_version(arguments: str, config: str | None) -> str:
    """The newest version of SGLang whose parser takes a command line, or else the newest."""
    newest, *earlier = read_versions(_OPTIONS)
    for version in (newest, *earlier):
        with contextlib.suppress(ModelError):
            parse_command(arguments, config, version)
            return version
    return newest


def parse_command(arguments: str, config: str | None, version: str = "") -> LaunchCommand:
    """Parse a command line as a version or the newest does, and a file of options below it.

    Raises `ModelError`.
    """
    environment, words = split_command(arguments)
    command, *rest = words or [_MODULE]
    by_serve = command.rpartition("/")[2] == "sglang" and rest[:1] == ["serve"]
    if by_serve:
        rest = rest[1:]
        if rest and not rest[0].startswith("-"):
            rest = ["--model-path", *rest]
    elif command != _MODULE:
        message = f"{quoted(command)} starts no engine; see --backend sglang"
        raise ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message)
    if COMMENT in rest:
        raise wrong("a comment (#) ends a command: move it in front of the command or behind it")
    if "--config" in rest[:-1]:
        if config is not None:
            raise wrong("a file of options is named twice: in the line by --config, and beside it")
        at = rest.index("--config")
        config = rest[at + 1]
        rest = rest[:at] + rest[at + 2 :]
    parser = _parser(version or read_versions(_OPTIONS)[0])
    words = [*(_of_file(config, parser) if config else ()), *rest]
    given = vars(parser.parse_args(words))
    if not by_serve and "model_type" in given:
        raise wrong("--model-type is an option of `sglang serve` alone")
    return LaunchCommand(environment, given)


def split_command(arguments: str) -> tuple[dict[str, str], list[str]]:
    """The variables in front of a command, and its words."""
    words = shell_words(arguments)
    environment: dict[str, str] = {}
    while words and (_BEFORE.fullmatch(words[0]) or _ASSIGNMENT.fullmatch(words[0])):
        if assignment := _ASSIGNMENT.fullmatch(words.pop(0)):
            environment[assignment[1]] = assignment[2]
    return environment, words


def _int(text: str) -> int | str:
    """An integer, or what only a shell expands, which most options may keep."""
    return text if UNEXPANDED in text else int(text)


def _float(text: str) -> float | str:
    return text if UNEXPANDED in text else float(text)


def _human_readable_int(text: str) -> int | str:
    found = _HUMAN.fullmatch(text.strip())
    if found is None:
        return _int(text)
    number, decimal, binary = found.groups()
    if binary:
        return int(number) << 10 * (_PREFIXES.index(binary.replace("K", "k")) + 1)
    return int(Decimal(number) * 1000 ** (_PREFIXES.index(decimal) + 1))


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": _int, "float": _float, "human_readable_int": _human_readable_int,
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    version = ""  # of SGLang

    def flags(self) -> frozenset[str]:
        """The options without a value."""
        return frozenset(action.dest for action in self._actions if action.nargs == 0)

    def error(self, message: str) -> NoReturn:
        names = re.findall(r"--[\w-]+", message)
        for name in names:
            if name in _GONE:
                raise wrong(f"{name}: SGLang {self.version} has no such option: {_GONE[name]}")
        hint = ""
        if message.startswith("unrecognized arguments") and names:
            known = [name for action in self._actions for name in action.option_strings]
            hint = did_you_mean(names[0], known)
        raise wrong(f"SGLang {self.version} refuses the command line: {message}{hint}")


@cache
def _parser(version: str) -> _Parser:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.version = version
    for option in listed(_OPTIONS, version):
        nargs = option.get("nargs")
        if nargs == 0:
            negated = any(name.startswith("--no-") for name in option["names"])
            action: Any = argparse.BooleanOptionalAction if negated else "store_true"
            names = [name for name in option["names"] if not negated or name[:5] != "--no-"]
            parser.add_argument(*names, action=action)
            continue
        kind = _TYPES.get(option.get("type", ""), str)
        choices = option.get("choices")
        parser.add_argument(*option["names"], nargs=nargs, type=kind, choices=choices)
    parser.add_argument("--model-type", choices=("llm", "diffusion", "auto"))
    return parser


def _of_file(config: str, parser: _Parser) -> Iterator[str]:
    """The words of a file of options."""
    content = read_yaml(config) or {}
    if not isinstance(content, Mapping):
        raise malformed(f"{config} must hold options by name, found {quoted(content)}")
    flags = parser.flags()
    for key, value in content.items():
        name = f"--{key}"
        if isinstance(value, bool) and str(key).replace("-", "_") in flags:
            yield from [name] if value else []
        elif isinstance(value, list):
            yield from (name, *map(str, value))
        elif isinstance(value, Mapping):
            yield from (name, json.dumps(value))
        else:
            yield from (name, str(value).lower() if isinstance(value, bool) else str(value))
