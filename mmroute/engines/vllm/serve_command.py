"""Parses a ``vllm serve`` command line or its configuration file.

Source: vLLM ``utils/argparse_utils.py``; vLLM ``entrypoints/common/cli_args.py`` and
``engine/arg_utils.py``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, TypeAlias

from mmroute.engines.shell_words import (
    COMMENT,
    OPERATORS,
    check_expanded,
    check_model,
    check_object,
    read_yaml,
    shell_words,
    wrong,
)
from mmroute.errors import did_you_mean, malformed, quoted

_OPTIONS: Final = json.loads(
    (resources.files("mmroute.engines.vllm") / "serve_options.json").read_text(encoding="utf-8")
)
FLAGS: Final[frozenset[str]] = frozenset(_OPTIONS["flags"])
"""Without a value. Each has its opposite: ``--no-x``; or ``--disable-x`` of ``--enable-x``."""
VALUES: Final[frozenset[str]] = frozenset(_OPTIONS["values"])
"""With one value."""
LISTS: Final[frozenset[str]] = frozenset(_OPTIONS["lists"])
"""With one value or several."""
# ``-O3`` is rewritten before the parser sees it.
SHORT: Final[dict[str, str]] = {**_OPTIONS["short"], "-O": "optimization-level"}
"""Short name -> long name."""
OWN_TOKENIZER_MODES: Final = (
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "inkling", "kimi_k3", "mistral",
)  # fmt: skip
"""The values of ``--tokenizer-mode`` that name a tokenizer or a chat renderer of its own."""


Value: TypeAlias = "bool | str | list[str]"
"""Of one option: a flag, a value, or several."""

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# What may stand before the options: the words of a command, and what is run by it.
_COMMAND: Final = re.compile(
    r"(exec|env|nohup|sudo|(\S*/)?vllm|serve|launch|render|(\S*/)?python[0-9.]*|-m|"
    r"vllm\.entrypoints\.openai\.api_server)"
)
# Those of them that start a server.
_SERVERS: Final = ("serve", "launch", "vllm.entrypoints.openai.api_server")
_OPPOSITES: Final = (("enable-", "disable-"), ("disable-", "enable-"))
_ALL: Final = FLAGS | VALUES | LISTS


_CONTAINERS: Final = re.compile(r"(\S*/)?(docker|podman|nerdctl|kubectl)|(\S*/)?vllm-openai\S*")
_ENGINE: Final = re.compile(
    r"(^|[\s/])vllm\s+(serve|launch)\b|vllm\.entrypoints\.openai\.api_server"
)
_ALONE: Final = (
    "give the engine's own command alone, from `vllm serve` on, with the variables that it sees "
    "(NAME=VALUE) in front"
)


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """The command with which a server was started, each value as it was written."""

    model: str | None = None  # the positional argument, or `--model`
    options: Mapping[str, Value] = field(default_factory=dict)  # the options by their long names
    # The variables that are set in front of the command.
    environment: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False  # whether it is a complete command with its model


def parse_command(text: str, *, config: str | None = None) -> ServeCommand:
    """Parse a command line."""
    environment, command, words = _split(text)
    model, options = _parsed(words)
    if model is not None:
        check_model(model)
    config = config or _text(options.pop("config", None))
    if config is not None:
        of_file = parse_file(config)
        model, options = model or of_file.model, {**of_file.options, **options}
    return ServeCommand(model, options, environment, command and model is not None)


def joined(first: str, second: str) -> str:
    """Join two command lines; the second takes precedence, and says whether both are complete."""
    environment, _, words = _split(first)
    own_environment, _, own_words = _split(second)
    own = parse_command(second)
    if own.model is not None and "--model" in words:
        at = words.index("--model")
        del words[at : at + 2]
    named = [word for word in own_words[:1] if not word.startswith("-")]
    assignments = [f"{n}={value}" for n, value in {**environment, **own_environment}.items()]
    command = ["vllm", "serve"] if own.complete else []
    known = parse_command(first).options.get("max-model-len")
    automatic = is_automatic(own.options.get("max-model-len"))  # the first one has what it became
    length = ["--max-model-len", known] if automatic and isinstance(known, str) else []
    return shlex.join([*assignments, *command, *named, *words, *own_words[len(named) :], *length])


def is_automatic(context: Value | None) -> bool:
    """Whether an engine with this value of ``--max-model-len`` chooses its longest context."""
    return isinstance(context, str) and context.strip().lower() in ("-1", "auto")


@dataclass(slots=True)
class _Front:
    """The words in front of a model and its options."""

    environment: dict[str, str] = field(default_factory=dict)  # the variables that the engine sees
    command: bool = False  # whether a server is started
    _started: bool = False
    _exported: bool = False
    _unexported: str = ""

    def takes(self, word: str) -> bool:
        """Whether this is such a word; then it is read."""
        if assignment := _ASSIGNMENT.fullmatch(word):
            self.environment[assignment[1]] = assignment[2]
            if not self._exported:
                self._unexported = word
            return True
        if _COMMAND.fullmatch(word):
            if word == "sudo" and self.environment:
                raise wrong("sudo drops the variables in front of it: write them behind it")
            self._started, self.command = True, self.command or word in _SERVERS
            return True
        return not self._started and self._joins(word)

    def _joins(self, word: str) -> bool:
        """Whether this is a word of a shell between variables and the command."""
        if word in {";", "&&"}:
            if self._unexported:
                raise wrong(
                    f"{quoted(f'{self._unexported} {word}')} sets no variable of the engine: write "
                    f"{self._unexported} in front of `vllm serve` without {word}, or `export`"
                )
            self._exported = False
            return True
        self._exported |= word == "export"
        return word in {COMMENT, "export"}


def _split(text: str) -> tuple[dict[str, str], bool, list[str]]:
    """The variables in front of a command, whether it is there, and what is behind its words."""
    words = shell_words(text)
    while words and words[-1] == COMMENT:
        words.pop()
    front = _Front()
    while words and front.takes(words[0]):
        words.pop(0)
    environment, command = front.environment, front.command
    _check_words(words)
    return environment, command, words


def _check_words(words: Sequence[str]) -> None:
    """Check the words behind variables and `vllm serve`: the model, and options."""
    if words and _CONTAINERS.fullmatch(words[0]):
        raise wrong(
            f"{quoted(words[0])}: of a container give `vllm serve`, the arguments behind the name "
            "of the image, and the variables (-e) as NAME=VALUE in front"
        )
    if words and not words[0].startswith("-") and _ENGINE.search(" ".join(words[1:])):
        raise wrong(f"{quoted(words[0])} stands in front of the engine's command: {_ALONE}")
    for word in words:
        if word == COMMENT:
            raise wrong(
                "a comment (#) ends a command, and words follow it: move it in front of the "
                "command or behind it"
            )
        if word and not word.strip(OPERATORS):
            raise wrong(f"{quoted(word)} is for a shell: {_ALONE}")


def parse_file(path: str) -> ServeCommand:
    """Read a configuration file of ``vllm serve --config``."""
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise malformed(f"{path} must hold options by name, found {quoted(found)}")
    model, options = _parsed(list(_words_of_file(found)))
    return ServeCommand(model, options)


def _words_of_file(options: Mapping[Any, Any]) -> Iterator[str]:
    for key, value in options.items():
        match value:
            case True:
                yield f"--{key}"
            case False:
                if _known(str(key).replace("_", "-")) in FLAGS:
                    yield f"--no-{key}"
            case [*items]:
                yield from [f"--{key}", *map(str, items)] if items else ()
            case dict():
                yield from (f"--{key}", json.dumps(value))
            case _:
                yield from (f"--{key}", str(value))


def _parsed(words: Sequence[str]) -> tuple[str | None, dict[str, Value]]:
    found: list[str] = []
    options: dict[str, Value] = {}
    nested: dict[str, dict[str, Any]] = {}
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-"):
            check_expanded("the engine's model", word)
            found.append(word)
            continue
        if re.fullmatch(r"-O=?\w+", word):
            word = f"-O={word[2:].removeprefix('=')}"
        written, equals, value = word.partition("=")
        name, *keys = _long(written).split(".")
        name, positive = _option(name)
        if name in FLAGS:
            if equals:
                raise wrong(f"--{name} takes no value, found {quoted(value)}")
            options[name] = positive
            continue
        values = [value] if equals else _values(waiting, many=name in LISTS and not keys)
        if not values and name not in LISTS:
            raise wrong(f"--{name} needs a value")
        for value in () if keys else values:
            check_object(name, value)
        if keys:
            _nest(nested.setdefault(name, {}), keys, values[0])
        else:
            options[name] = values if name in LISTS else values[0]
    if len(found) > 1:
        raise wrong(
            f"{quoted(found[1])}: the engine's model is {quoted(found[0])} already; give one "
            "command, `vllm serve MODEL ...`, with nothing but variables (NAME=VALUE) in front"
        )
    options |= {name: json.dumps(value) for name, value in nested.items()}
    return _text(options.pop("model", None)) or next(iter(found), None), options


def _values(waiting: list[str], *, many: bool) -> list[str]:
    """The values of an option: one word of any form, or all words up to the next option."""
    if not many:
        return [waiting.pop()] if waiting else []
    values = []
    while waiting and not waiting[-1].startswith("-"):
        values.append(waiting.pop())
    return values


def _long(name: str) -> str:
    if name.startswith("--"):
        option, dot, rest = name[2:].partition(".")
        return option.replace("_", "-") + dot + rest
    short, dot, rest = name.partition(".")
    if short not in SHORT:
        raise wrong(f"there is no option {quoted(name)} of vllm serve{did_you_mean(name, SHORT)}")
    return SHORT[short] + dot + rest


def _option(name: str) -> tuple[str, bool]:
    """The option's own name, and whether it is said in the affirmative."""
    known = _known(name)
    if known is not None:
        return known, True
    opposites = [name.removeprefix("no-")] if name.startswith("no-") else []
    opposites += [ours + name.removeprefix(s) for s, ours in _OPPOSITES if name.startswith(s)]
    for opposite in opposites:
        if opposite in FLAGS:
            return opposite, False
    hint = did_you_mean(f"--{name}", [f"--{option}" for option in _ALL])
    raise wrong(f"there is no option --{name} of vllm serve{hint}")


def _known(name: str) -> str | None:
    """The option of this name, or the only one that begins like it."""
    if name in _ALL:
        return name
    alike = [option for option in _ALL if option.startswith(name)]
    return alike[0] if len(alike) == 1 else None


def _nest(into: dict[str, Any], keys: Sequence[str], text: str) -> None:
    """``--option.a.b value``: the value at its place in the option's object."""
    *path, last = keys
    for key in path:
        into = into.setdefault(key, {})
        if not isinstance(into, dict):
            raise wrong(f"{'.'.join(keys)}: {key} has a value already")
    value: Any
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if last.endswith("+"):
        into.setdefault(last[:-1], []).extend(text.split(","))
    else:
        into[last] = value


def _text(value: Value | None) -> str | None:
    return value if isinstance(value, str) else None
