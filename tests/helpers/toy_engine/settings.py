"""The settings of the toy, from its own command line: ``toyserve [MODEL] [--option ...]``."""

import shlex
from argparse import ArgumentError, ArgumentParser
from dataclasses import dataclass
from typing import ClassVar, Self

from mmroute.engine import EngineSettings
from mmroute.errors import ModelError, Reason, quoted


@dataclass(frozen=True, slots=True)
class ToySettings(EngineSettings):
    engine: ClassVar[str] = "toy"
    loras: ClassVar[dict[str, str]] = {}
    model_string: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    page_size: int = 8
    without_effect: tuple[str, ...] = ()

    def prompt_settings(self) -> Self:
        return type(self)()  # no option changes prompts

    @classmethod
    def is_started_by(cls, arguments: str) -> bool:
        return arguments.split()[:1] == ["toyserve"]

    @classmethod
    def read(cls, arguments: str, config: str | None) -> Self:
        parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        parser.add_argument("model", nargs="?")
        parser.add_argument("--page-size", type=_positive, default=8)
        parser.add_argument("--port")
        try:
            found, unknown = parser.parse_known_args(shlex.split(arguments)[1:])
        except (ArgumentError, ValueError) as error:  # or a quote that is not closed
            raise ModelError(Reason.INVALID_ENGINE_SETTING, f"toyserve: {error}") from error
        if unknown or config is not None:
            option = quoted(unknown[0]) if unknown else "a file of options"
            message = f"{option}: this option of the toy is not covered"
            raise ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message)
        harmless = () if found.port is None else ("--port",)
        return cls(found.model, page_size=found.page_size, without_effect=harmless)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(text)
    return int(text)
