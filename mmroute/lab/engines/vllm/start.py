"""Starts vLLM on a shrunken copy of a model, by the user's line as far as a CPU runs it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from mmroute.engines.vllm.reported import ask_options
from mmroute.engines.vllm.serve_command import ServeCommand, Value, parse_command
from mmroute.lab.engines.environment import cache_directory
from mmroute.lab.engines.process import Engine, free_port
from mmroute.lab.engines.starting import Command, Started, aside, kept_string, shrunken_copy
from mmroute.model_directory import ModelFiles
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # gigabytes
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
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
    """See `mmroute.lab.engines.Prover`."""
    string = given.model or model
    files, copy = shrunken_copy(model, string, directory, revision)
    port, events = free_port(), events or f"ipc://{directory}/events"
    command = engine_command(given, string, copy)
    for note in command.notes:
        say(note)
    command = replace(command, options={**command.options, **machine_options(port, events, files)})
    engine = Engine(
        python,
        _LAUNCHER,
        ["serve", command.program[-1], *command.arguments],
        environment={
            **_ENVIRONMENT,
            "VLLM_CACHE_ROOT": str(cache_directory() / "vllm"),
            **command.environment,
        },
        directory=directory,
        port=port,
        quickly=quickly,
    )
    return Started(engine, command, events, command.notes)


def adopted(started: Started) -> str:
    """See `mmroute.lab.engines.Prover`. It chose the size of blocks."""
    command = started.command
    with contextlib.closing(Transport(Remote(started.engine.url, timeout=10.0))) as transport:
        reported = parse_command(ask_options(transport).line)
    return replace(command, options={**command.options, **reported.options}).line


def engine_command(given: ServeCommand, model: str, copy: Path) -> Command:
    """The command line of an engine for a shrunken copy."""
    options = {
        n: v for n, v in given.options.items() if n in _KEPT and (n, v) != ("tokenizer", model)
    }
    left_out = aside(given.options, _KEPT)
    model, changed = kept_string(model, copy)
    template = options.get("chat-template")
    if isinstance(template, str) and Path(template).is_file():
        options["chat-template"] = str(Path(template).resolve())
    size = options.get("block-size")
    if not (isinstance(size, str) and size.isdecimal() and int(size) % _BLOCK_SIZE == 0):
        if size is not None:
            note = f"--block-size {size} is {_BLOCK_SIZE}: a CPU takes multiples of that."
            changed = (*changed, note)
        options["block-size"] = str(_BLOCK_SIZE)
    options.setdefault("max-num-batched-tokens", _BATCHED_TOKENS)
    environment = {n: v for n, v in given.environment.items() if n != "HF_HUB_OFFLINE"}
    return Command(("vllm", "serve", model), options, environment, left_out, changed)


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
