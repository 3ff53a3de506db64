"""Starts an engine on a shrunken copy of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mmroute.engines.vllm.serve_command import ServeCommand
from mmroute.lab.engines.vllm.command import (
    EngineCommand,
    engine_command,
    keeps_string,
    machine_options,
)
from mmroute.lab.engines.vllm.environment import cache_directory
from mmroute.lab.engines.vllm.process import Engine, free_port
from mmroute.lab.engines.vllm.shrinking import shrink
from mmroute.model_directory import TOKENIZER_FILES, find_model

_PROCESSOR_FILES: Final = ("preprocessor_config.json", "video_preprocessor_config.json",
                           "generation_config.json", "*.py")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Started:
    """An engine that was started, and may not answer yet."""

    engine: Engine  # its process, a context manager that ends it
    command: EngineCommand  # the command line with which it was started
    events: str  # the endpoint of its KV events
    notes: tuple[str, ...]  # sentences about the differences from the user's command line


def start_engine(
    model: str,
    given: ServeCommand,
    python: Path,
    directory: Path,
    *,
    revision: str | None = None,
    quickly: bool = True,
    events: str = "",
    say: Callable[[str], None],
) -> Started:
    """Start an engine on a shrunken copy of a model."""
    patterns = (*TOKENIZER_FILES, *_PROCESSOR_FILES)
    files = find_model(model, revision=revision, patterns=patterns)
    string = given.model or model
    copy = directory / (string if keeps_string(string) else "model")
    shrink(files, patterns, copy)
    port, events = free_port(), events or f"ipc://{directory}/events"
    command = engine_command(given, string, copy)
    notes = [*command.changed]
    if command.put_aside:
        aside = " ".join(command.put_aside)
        notes.insert(
            0,
            "Put aside, as they concern the machine, the network or weights, which are this "
            f"command's own: {aside}",
        )
    for note in notes:
        say(note)
    command = replace(command, options=command.options | machine_options(port, events, files))
    engine = Engine(
        python,
        command.arguments,
        environment={"VLLM_CACHE_ROOT": str(cache_directory() / "vllm"), **command.environment},
        directory=directory,
        port=port,
        quickly=quickly,
    )
    return Started(engine, command, events, tuple(notes))
