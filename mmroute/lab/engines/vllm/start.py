"""Starts an engine on a shrunken copy of a model, by the user's line as far as a CPU runs it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from mmroute.engines.vllm.serve_command import ServeCommand, Value
from mmroute.lab.engines.vllm.environment import cache_directory
from mmroute.lab.engines.vllm.process import Engine, free_port
from mmroute.lab.engines.vllm.shrinking import shrink
from mmroute.model_directory import TOKENIZER_FILES, ModelFiles, find_model

_PROCESSOR_FILES: Final = ("preprocessor_config.json", "video_preprocessor_config.json",
                           "generation_config.json", "*.py")  # fmt: skip
# Options that decide what is answered, refused or cached. All others are of the machine, of the
# network or of logs; of LoRA, drafters and connectors, whose weights do not fit a shrunken model.
_KEPT: Final = frozenset((
    "allowed-local-media-path", "allowed-media-domains", "async-scheduling", "block-size",
    "chat-template", "chat-template-content-format", "cohere-format", "config-format", "convert",
    "default-chat-template-kwargs", "disable-chunked-mm-input", "disable-hybrid-kv-cache-manager",
    "disable-sliding-window", "enable-auto-tool-choice", "enable-chunked-prefill",
    "enable-mm-embeds", "enable-prefix-caching", "enable-prompt-embeds", "enable-scale-out",
    "exclude-tools-when-tool-choice-none", "generation-config", "hf-overrides",
    "interleave-mm-strings", "language-model-only", "limit-mm-per-prompt",
    "long-prefill-token-threshold", "mamba-block-size", "mamba-cache-mode", "max-model-len",
    "max-num-batched-tokens", "max-num-seqs", "media-io-kwargs", "mm-hasher-algorithm",
    "mm-processor-cache-gb", "mm-processor-kwargs", "num-gpu-blocks-override",
    "prefix-cache-retention-interval", "prefix-caching-hash-algo", "prefix-match-unit",
    "reasoning-effort-map", "reasoning-parser", "response-role", "runner",
    "swa-bounded-replay", "tokenizer-mode", "tool-call-parser", "trust-remote-code",
    "trust-request-chat-template", "trust-request-mm-kwargs", "video-pruning-rate",
))  # fmt: skip
_BLOCK_SIZE: Final = 32  # the smallest that vLLM's attention on a CPU takes
_BATCHED_TOKENS: Final = "8192"  # vLLM's default depends on the machine
_LINEAR: Final = '"linear_attention"'


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


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """The command line with which the engine is started."""

    model: str  # the engine's model string
    options: dict[str, Value]  # the options behind it, by their long names
    environment: Mapping[str, str]  # the variables in front
    # The user's options and variables that are left out, as they were written.
    put_aside: tuple[str, ...]
    # Sentences about the values that replace the user's, each with the reason.
    changed: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``vllm serve``."""
        return [self.model, *(w for pair in self.options.items() for w in _written(*pair))]

    @property
    def line(self) -> str:
        """The command line as one text, for `EngineSettings.from_args`."""
        assignments = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*assignments, "vllm", "serve", *self.arguments])


def engine_command(given: ServeCommand, model: str, copy: Path) -> EngineCommand:
    """The command line of an engine for a shrunken copy."""
    options = {
        n: v for n, v in given.options.items() if n in _KEPT and (n, v) != ("tokenizer", model)
    }
    aside = [w for n, v in given.options.items() if n not in _KEPT for w in _written(n, v)]
    changed = []
    if not keeps_string(model):
        changed.append(
            f"The engine's model string is {copy}, as {model} is no path below a directory of its "
            "own. Both sides use it."
        )
        model = str(copy)
    template = options.get("chat-template")
    if isinstance(template, str) and Path(template).is_file():
        options["chat-template"] = str(Path(template).resolve())
    size = options.get("block-size")
    if not (isinstance(size, str) and size.isdecimal() and int(size) % _BLOCK_SIZE == 0):
        if size is not None:
            changed.append(f"--block-size {size} is {_BLOCK_SIZE}: a CPU takes multiples of that.")
        options["block-size"] = str(_BLOCK_SIZE)
    options.setdefault("max-num-batched-tokens", _BATCHED_TOKENS)
    environment = {n: v for n, v in given.environment.items() if n != "HF_HUB_OFFLINE"}
    return EngineCommand(model, options, environment, tuple(aside), tuple(changed))


def keeps_string(model: str) -> bool:
    """Whether a directory can be found by this model string below another one."""
    path = PurePosixPath(model)
    return not path.is_absolute() and not {"..", "~"} & set(path.parts)


def machine_options(port: int, events: str, files: ModelFiles) -> dict[str, Value]:
    """The options that let the engine run here, publish events and count cached tokens."""
    has_config = files.has("config.json")
    config = files.text("config.json") if has_config else ""
    mistral: dict[str, Value] = {"tokenizer-mode": "mistral", "config-format": "mistral"}
    published = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events}
    return {
        "host": "127.0.0.1",
        "port": str(port),
        "load-format": "dummy",
        "enforce-eager": True,
        # Linear attention has no code for float32 on a CPU, and some attention has none for others.
        "dtype": "bfloat16" if _LINEAR in config else "float32",
        "enable-prompt-tokens-details": True,
        "kv-events-config": json.dumps(published),
        **({} if has_config else mistral),
    }


def _written(name: str, value: Value) -> list[str]:
    match value:
        case True:
            return [f"--{name}"]
        case False:
            return [f"--no-{name}"]
        case str():
            return [f"--{name}", value]
    return [f"--{name}", *value]
