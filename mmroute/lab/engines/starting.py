"""What the starts of all engines share: the copy of the model, the line, and what is told of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mmroute.lab.engines.process import Engine
from mmroute.lab.engines.shrinking import shrink
from mmroute.model_directory import TOKENIZER_FILES, ModelFiles, find_model

_PROCESSOR_FILES: Final = ("preprocessor_config.json", "video_preprocessor_config.json",
                           "generation_config.json", "*.py")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Started:
    """An engine that was started, and may not answer yet."""

    engine: Engine  # its process, a context manager that ends it
    command: Command  # the command line with which it was started
    events: str  # the endpoint of its KV events
    notes: tuple[str, ...]  # sentences about the differences from the user's command line


@dataclass(frozen=True, slots=True)
class Command:
    """The command line with which an engine is started."""

    program: tuple[str, ...]  # its first words, before the options
    options: Mapping[str, Any]  # the options behind them, by their long names
    environment: Mapping[str, str]  # the variables in front
    # The user's options and variables that are left out, as they were written.
    put_aside: tuple[str, ...]
    # Sentences about the values that replace the user's, each with the reason.
    changed: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The options as words."""
        return [word for pair in self.options.items() for word in written(*pair)]

    @property
    def line(self) -> str:
        """The command line as one text, for `EngineSettings.from_args`."""
        assignments = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*assignments, *self.program, *self.arguments])

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences about the differences from the user's line."""
        if not self.put_aside:
            return self.changed
        aside = (
            "Put aside, as they concern the machine, the network or weights, which are this "
            f"command's own: {' '.join(self.put_aside)}"
        )
        return (aside, *self.changed)


def shrunken_copy(
    model: str, string: str, directory: Path, revision: str | None
) -> tuple[ModelFiles, Path]:
    """A model's files, and a copy with few weights, found by the model string where it can be."""
    patterns = (*TOKENIZER_FILES, *_PROCESSOR_FILES)
    files = find_model(model, revision=revision, patterns=patterns)
    copy = directory / (string if keeps_string(string) else "model")
    shrink(files, patterns, copy)
    return files, copy


def kept_string(model: str, copy: Path) -> tuple[str, tuple[str, ...]]:
    """The model string of an engine that runs above its copy, and a note if it is another one."""
    if keeps_string(model):
        return model, ()
    note = (
        f"The engine's model string is {copy}, as {model} is no path below a directory of its own. "
        "Both sides use it."
    )
    return str(copy), (note,)


def keeps_string(model: str) -> bool:
    """Whether a directory can be found by this model string below another one."""
    path = PurePosixPath(model)
    return not path.is_absolute() and not {"..", "~"} & set(path.parts)


def aside(options: Mapping[str, Any], kept: Iterable[str]) -> tuple[str, ...]:
    """The words of the options that are not kept."""
    return tuple(w for n, v in options.items() if n not in kept for w in written(n, v))


def written(name: str, value: Any) -> list[str]:
    """An option as words of a command line."""
    match value:
        case True:
            return [f"--{name}"]
        case False:
            return [f"--no-{name}"]
        case list():
            return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]
