"""The settings of SGLang, from its own command line.

Source: SGLang ``srt/server_args.py``, ``srt/environ.py`` (`EnvBool`),
``srt/arg_groups/overrides.py`` (the page size that a backend takes).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from mmroute.engine import PYTHON, EngineSettings
from mmroute.errors import ModelError, Reason, quoted

RUST_REFUSED: Final = (
    "SGLANG_RUST_SERVER: SGLang's Rust server is not covered. It renders, tokenizes and counts "
    "images by other code than its Python server, which runs where the variable is not set, and "
    "for which --backend sglang answers"
)
_RUST: Final = "SGLANG_RUST_SERVER"
_OFF: Final = ("0", "false", "n", "no")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BEFORE: Final = re.compile(r"exec|env|export|nohup|sudo|;|&&|-m|(\S*/)?python[0-9.]*")
_STARTS: Final = re.compile(r"(\S*/)?(sglang|smg)|sglang(_router)?\.\S+")
_MODULE: Final = "sglang.launch_server"
_MODEL: Final = ("--model-path", "--model")
_READ: Final = (*_MODEL, "--served-model-name", "--revision", "--page-size")
_HARMLESS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("--api-key", "--host", "--log-level", "--mem-fraction-static", "--port"), 1),
    **dict.fromkeys(("--tensor-parallel-size", "--tp", "--tp-size"), 1),
    "--enable-metrics": 0,
    "--kv-events-config": 1,
}  # with the number of their values
_PAGE_SIZES: Final = ("16", "32", "64", "128")  # which every backend of the covered models takes


@dataclass(frozen=True, slots=True)
class SglangSettings(EngineSettings):
    """The options with which SGLang was started. None or empty stands for its default.

    Attributes:
        model: the path of the model.
        served_names: the served name.
        revision: the branch, tag or commit on the hub.
        page_size: the number of tokens in a page; None where the attention backend decides.
        without_effect: the options on which nothing here depends.
    """

    engine: ClassVar[str] = "sglang"
    loras: ClassVar[Mapping[str, str]] = {}
    model: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    page_size: int | None = None
    without_effect: tuple[str, ...] = ()

    @property
    def model_string(self) -> str | None:
        return self.model

    def prompt_settings(self) -> Self:
        """None of them changes prompts, once the files are chosen."""
        return type(self)()

    @classmethod
    def adopted(cls, _transport: object, frontend: str, _given: str, _config: object) -> None:
        """See `EngineSettings`: the options of a running server are not read."""
        if frontend != PYTHON:
            raise _unsupported(RUST_REFUSED)

    @classmethod
    def is_started_by(cls, arguments: str) -> bool:
        try:
            environment, words = _split(arguments)
        except ValueError:  # a quote is not closed
            return False
        return _is_rust(environment) or bool(words and _STARTS.fullmatch(words[0]))

    @classmethod
    def read(cls, arguments: str, config: str | None) -> Self:
        if config is not None:
            raise _unsupported("--config: files of options are not read for SGLang")
        environment, words = _split(arguments)
        if _is_rust(environment):
            raise _unsupported(RUST_REFUSED)
        command, *rest = words or [_MODULE]
        if command.rpartition("/")[2] == "sglang" and rest[:1] == ["serve"]:
            rest = rest[1:]
            if rest and not rest[0].startswith("-"):
                rest = ["--model-path", *rest]
        elif command != _MODULE:
            raise _unsupported(f"{quoted(command)} starts no engine; see --backend sglang")
        variables = sorted(environment.keys() - {_RUST})
        if wrong := [name for name in variables if name.startswith("SGLANG_")]:
            raise _unsupported(f"{', '.join(wrong)}: its effect is not covered for SGLang")
        options = dict(_options(rest))
        model = next((options.pop(name) for name in _MODEL if name in options), None)
        name = options.pop("--served-model-name", None)
        page_size = options.pop("--page-size", None)
        if "format" in options.get("--kv-events-config", ""):
            raise _unsupported("--kv-events-config: another format of events is not covered")
        if page_size is not None and page_size not in _PAGE_SIZES:
            raise _unsupported(
                f"--page-size {quoted(page_size)}: some GPUs take another; covered are "
                f"{', '.join(_PAGE_SIZES)}"
            )
        found: dict[str, Any] = {
            "model": model,
            "served_names": () if name is None else (name,),
            "revision": options.pop("--revision", None),
            "page_size": page_size and int(page_size),
            "without_effect": (*sorted(options), *variables),
        }
        return cls(**found)


def _split(arguments: str) -> tuple[dict[str, str], list[str]]:
    """The variables in front of a command, and its words."""
    words = shlex.split(arguments)
    environment: dict[str, str] = {}
    while words and (_BEFORE.fullmatch(words[0]) or _ASSIGNMENT.fullmatch(words[0])):
        if assignment := _ASSIGNMENT.fullmatch(words.pop(0)):
            environment[assignment[1]] = assignment[2]
    return environment, words


def _is_rust(environment: Mapping[str, str]) -> bool:
    return environment.get(_RUST, "0").lower() not in _OFF


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    waiting = list(reversed(words))
    while waiting:
        name, equals, value = waiting.pop().partition("=")
        if name not in _READ and name not in _HARMLESS:
            raise _unsupported(f"{quoted(name)}: this option of SGLang is not covered")
        if not equals and _HARMLESS.get(name, 1):
            if not waiting or waiting[-1].startswith("--"):
                message = f"{name} needs a value"
                raise ModelError(Reason.INVALID_ENGINE_SETTING, message)
            value = waiting.pop()
        if name in _READ and "$" in value:
            message = f"{name} {quoted(value)}: write the value that the shell puts there"
            raise ModelError(Reason.INVALID_ENGINE_SETTING, message)
        yield name, value


def _unsupported(message: str) -> ModelError:
    return ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message)
