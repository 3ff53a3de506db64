"""Starts SGLang on a shrunken copy of a model, by the user's line as far as a CPU runs it.

Source: SGLang 0.5.23 ``srt/server_args.py``; what starts on a CPU was found by starting it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mmroute.engines.sglang.options import LaunchCommand
from mmroute.engines.sglang.profile import SGLANG
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.errors import MmrouteError
from mmroute.lab.engines.process import Engine, free_port
from mmroute.lab.engines.starting import Command, Started, aside, kept_string, shrunken_copy
from mmroute.model_directory import ModelFiles
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.release import PYTHON

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_ENVIRONMENT: Final = {"TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_ON_CPU: Final = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_CPU_WORKERS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # no compiler is asked for
}
# Options that decide what is answered, refused or cached. All others are of the machine, of the
# network or of logs; of LoRA and drafters, whose weights do not fit a shrunken model; and of tiers
# of the cache that a CPU does not have.
_KEPT: Final = frozenset((
    "allow-auto-truncate", "allowed-media-domains", "chat-template", "chunked-prefill-size",
    "completion-template", "context-length", "default-chat-template-kwargs",
    "disable-fast-image-processor", "disable-radix-cache", "enable-multimodal",
    "hf-chat-template-name", "image-processor-backend", "json-model-override-args",
    "kv-events-config", "limit-mm-data-per-request", "mamba-radix-cache-strategy",
    "mamba-track-interval", "max-total-tokens", "mm-preprocess-cache-size-mb",
    "mm-process-config", "model-impl", "page-size", "radix-eviction-policy", "reasoning-parser",
    "revision", "strip-thinking-cache", "tokenizer-mode", "tokenizer-worker-num",
    "tool-call-parser", "trust-remote-code", "trust-request-chat-template",
))  # fmt: skip
_PAGE_SIZE: Final = 16
_POOL: Final = 1 << 16  # tokens of all requests, and so of the longest
# Models with a state start only so: the other strategy needs a GPU, and this one pages of a token.
_WITH_STATE: Final = {"mamba-radix-cache-strategy": "no_buffer", "page-size": 1}


def start_engine(
    model: str,
    given: LaunchCommand,
    python: Path,
    directory: Path,
    *,
    revision: str | None = None,
    quickly: bool = True,
    say: Callable[[str], None],
) -> Started:
    """See `mmroute.lab.engines.Prover`."""
    string = given.options.get("model_path") or model
    files, copy = shrunken_copy(model, string, directory, revision)
    port, events = free_port(), f"ipc://{directory}/events"
    # The user's own environment may have a GPU.
    command = engine_command(given, string, copy, has_state=quickly and has_state(files))
    for note in command.notes:
        say(note)
    options = {**command.options, **machine_options(port, events, command.options)}
    if quickly:
        options |= {"device": "cpu", "attention-backend": "torch_native"}
    command = replace(command, options=options)
    engine = Engine(
        python,
        _LAUNCHER,
        command.arguments,
        environment={**_ENVIRONMENT, **(_ON_CPU if quickly else {}), **command.environment},
        directory=directory,
        port=port,
        quickly=quickly,
    )
    return Started(engine, command, events, command.notes)


def adopted(started: Started) -> str:
    """See `mmroute.lab.engines.Prover`. A GPU may decide the size of pages."""
    asked = {name: value for name, value in started.command.options.items() if name != "page-size"}
    line = replace(started.command, options=asked).line
    with contextlib.closing(Transport(Remote(started.engine.url, timeout=10.0))) as transport:
        return SglangSettings.adopted(transport, PYTHON, line, None).line


def has_state(files: ModelFiles) -> bool:
    """Whether some layers of a model have a state in place of keys and values."""
    try:
        _, family = SGLANG.match(files)
    except MmrouteError:  # the model is refused later, and by name
        return False
    return family.hybrid


def engine_command(given: LaunchCommand, model: str, copy: Path, *, has_state: bool) -> Command:
    """The command line of an engine for a shrunken copy."""
    named = {name.replace("_", "-"): value for name, value in given.options.items()}
    options = {name: value for name, value in named.items() if name in _KEPT}
    named.pop("model-path", None)
    model, changed = kept_string(model, copy)
    template = options.get("chat-template")
    if template is not None and Path(template).is_file():
        options["chat-template"] = str(Path(template).resolve())
    options.setdefault("max-total-tokens", _POOL)
    options.setdefault("page-size", _PAGE_SIZE)
    for name, value in _WITH_STATE.items() if has_state else ():
        if named.get(name, value) != value:
            note = f"--{name} {named[name]} is {value}: on a CPU layers with a state take no other."
            changed = (*changed, note)
        options[name] = value
    options = {"model-path": model, **options}
    return Command(("sglang", "serve"), options, given.environment, aside(named, _KEPT), changed)


def machine_options(port: int, events: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that let the engine run here, publish events and count cached tokens."""
    published = json.loads(given.get("kv-events-config") or "{}")
    published = {name: published[name] for name in ("format", "topic") if name in published}
    published |= {"publisher": "zmq", "endpoint": events, "bind": True}
    return {
        "host": "127.0.0.1",
        "port": port,
        "load-format": "dummy",
        "max-running-requests": 4,
        "skip-server-warmup": True,
        "disable-overlap-schedule": True,
        "enable-cache-report": True,
        "kv-events-config": json.dumps(published),
    }
