"""Asks a running server for its engine, its models and its options.

Every server has routes for its model string, names, adapters and longest context, and metrics with
the block size and the hash algorithm. A server started with ``VLLM_SERVER_DEV_MODE=1`` has a route
for its complete configuration. No server gives PYTHONHASHSEED or its chat template. ``vllm launch
render`` has no cache, so it has no metrics of one, and shows the defaults of its configuration.
Source: vLLM ``entrypoints/serve/dev/server_info/api_router.py``,
``entrypoints/openai/models/serving.py``, ``config/cache.py`` (`metrics_info`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from mmroute.engines.frontends import Frontend
from mmroute.engines.running import Evidence, RunningEngine, running_engine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, Reason
from mmroute.net.transport import Transport

_MODELS: Final = "/v1/models"
_RUST: Final = "VLLM_USE_RUST_FRONTEND"
_CACHE_METRIC: Final = "vllm:cache_config_info{"  # a line for each engine of the server
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_DEFAULT: Final = "None"  # of a label
# The fields of the configuration that have the value of an option, by section. An option has the
# name of its field, with one exception.
_CONFIG_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "model_config": (
        "tokenizer", "tokenizer_mode", "revision", "hf_overrides", "model_impl",
        "allowed_media_domains",
    ),
    "multimodal_config": (
        "limit_per_prompt", "language_model_only", "media_io_kwargs", "mm_processor_kwargs",
        "mm_processor_cache_gb", "mm_hasher_algorithm", "interleave_mm_strings",
        "video_pruning_rate",
    ),
    "cache_config": ("block_size", "prefix_match_unit", "prefix_caching_hash_algo"),
    "scheduler_config": ("max_num_batched_tokens",),
    "lora_config": ("enable_tower_connector_lora",),
    "parallel_config": ("decode_context_parallel_size", "prefill_context_parallel_size"),
    "": ("speculative_config",),
}  # fmt: skip
_ENVIRONMENT: Final = (
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_MAX_IMAGE_PIXELS",
    "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES", "VLLM_MEDIA_CONNECTOR", _RUST,
)  # fmt: skip

_Options: TypeAlias = dict[str, list[str] | None]
"""The values by the option's name; None if the option has its default."""


@dataclass(frozen=True, slots=True)
class ReportedOptions:
    """The options that a server reports.

    Attributes:
        line: a command line with the options that are not the default, variables in front.
        names: all options and variables that the server reports, also those with their default.
    """

    line: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model or an adapter, as its server lists it.

    Attributes:
        parent: the model to which an adapter belongs; None for a model.
        root: the engine's model string, or the adapter's path; empty if the server gives none.
            Source: vLLM ``entrypoints/openai/models/serving.py``.
        max_model_len: the longest context; None if the server does not give it.
    """

    parent: str | None
    root: str
    max_model_len: int | None


def served_models(transport: Transport) -> Mapping[str, ServedModel]:
    """The models and adapters of a server by their names, at least one."""
    reply = transport.request("GET", _MODELS)
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE, f"{transport.name} refuses the API key, or requires one"
        )
    body = reply.body
    cards = body.get("data") if isinstance(body, dict) else None
    names = {
        str(card.get("id")): ServedModel(
            card.get("parent") or None, str(card.get("root") or ""), card.get("max_model_len")
        )
        for card in (cards if isinstance(cards, list) else ())
        if isinstance(card, dict)
    }
    if reply.status != HTTPStatus.OK or not names:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE,
            f"{transport.name}{_MODELS} answered with status {reply.status} and names no model; is "
            "it a vLLM server, or mmroute serve?",
        )
    return names


def ask_engine(transport: Transport) -> RunningEngine:
    """The engine of a server, as it names itself; an unknown engine if it does not."""
    # The first route is one of mmroute serve as well, which names the engine that it matches.
    for route, usual in (("/version", "vllm"), ("/server_info", "sglang")):
        body = transport.request("GET", route).body
        if isinstance(body, dict) and isinstance(body.get("version"), str):
            running = running_engine(str(body.get("engine", usual)), body["version"])
            running = running.behind(_frontend(body))
            if body.get("mmroute"):
                return replace(running, mmroute=str(body["mmroute"]), evidence=Evidence.UNKNOWN)
            return running
    if _is_rust_renderer(transport):
        return running_engine("vllm", "").behind(Frontend.RUST)
    return running_engine("engine", "")


def _frontend(version: Mapping[str, Any]) -> Frontend:
    """The frontend that answers the route of its version.

    Source: vLLM ``rust/src/server/src/routes/version.rs``; SGLang 0.5.23
    ``srt/managers/scheduler_components/internal_state.py`` (`_add_rust_server`).
    """
    states = version.get("internal_states") or ()
    rust = (
        "rust_frontend_version" in version
        or version.get("frontend") == Frontend.RUST
        or any("rust_server_startup_time" in state for state in states if isinstance(state, dict))
    )
    return Frontend.RUST if rust else Frontend.PYTHON


def _is_rust_renderer(transport: Transport) -> bool:
    """Whether the server is ``vllm-rs render``, which does not report its version.

    It refuses a wrong method with an empty body, where the Python server answers in JSON.
    """
    reply = transport.request("GET", "/v1/chat/completions/render")
    return reply.status == HTTPStatus.METHOD_NOT_ALLOWED and not reply.raw


def ask_options(transport: Transport) -> ReportedOptions:
    """The options of a server's command line, as far as the server reports them."""
    info = transport.request("GET", "/server_info?config_format=json").body
    info = info if isinstance(info, dict) else {}
    environment = info.get("vllm_env") or {}
    variables = {name: environment[name] for name in _ENVIRONMENT if name in environment}
    words = [
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in variables.items()
        if value is not None
    ]
    if _RUST not in variables and ask_engine(transport).frontend is Frontend.RUST:
        variables[_RUST] = "1"
        words.append(f"{_RUST}=1")
    options = _model_options(served_models(transport))
    configuration = info.get("vllm_config")
    if isinstance(configuration, dict):
        left_out: tuple[str, ...] = ()
        # vllm launch render generates nothing, and shows the defaults of these.
        if transport.request("GET", "/v1/chat/completions").status == HTTPStatus.NOT_FOUND:
            left_out = ("cache_config", "scheduler_config")
        options |= _configured_options(configuration, left_out)
    options |= _metrics_options(transport)
    return ReportedOptions(
        shlex.join([*words, *_words(options)]), frozenset({*options, *variables})
    )


def ask_cache(transport: Transport) -> VllmSettings:
    """The settings of the engine's cache in a server's metrics; empty if the metrics have none."""
    return VllmSettings.read(shlex.join(_words(_metrics_options(transport))), None)


def _words(options: _Options) -> list[str]:
    reported = ([option, *values] for option, values in options.items() if values is not None)
    return [word for words in reported for word in words]


def _metrics_options(transport: Transport) -> _Options:
    return _cache_options(transport.request("GET", "/metrics").raw.decode(errors="replace"))


def _model_options(models: Mapping[str, ServedModel]) -> _Options:
    options: _Options = {}
    own = {name: model for name, model in models.items() if model.parent is None}
    for first in list(own.values())[:1]:
        if first.root:
            options |= {"--model": [first.root], "--served-model-name": [*own]}
        if first.max_model_len is not None:
            options["--max-model-len"] = [str(first.max_model_len)]
    adapters = [f"{n}={model.root}" for n, model in models.items() if model.parent and model.root]
    options["--lora-modules"] = adapters or None
    return options


def _configured_options(configuration: Mapping[str, Any], left_out: tuple[str, ...]) -> _Options:
    model = configuration.get("model_config") or {}
    parts = {
        **configuration,
        "": configuration,
        "multimodal_config": model.get("multimodal_config"),
    }
    options: _Options = {}
    wanted = [(part, name) for part, names in _CONFIG_FIELDS.items() for name in names]
    for part, name in wanted:
        values = parts.get(part) or {}
        if name not in values or part in left_out:
            continue
        named = "limit_mm_per_prompt" if name == "limit_per_prompt" else name
        value, option = values[name], f"--{named.replace('_', '-')}"
        default = value is None or value is False or value in ({}, [])
        if default or (part == "parallel_config" and value == 1):
            options[option] = None
        elif isinstance(value, dict):
            options[option] = [json.dumps(value, default=str)]
        elif isinstance(value, list):
            options[option] = [*map(str, value)]
        else:
            options[option] = [] if value is True else [str(value)]
    return options


def _cache_options(text: str) -> _Options:
    """The options in the metrics of the cache, if all engines of the server have the same.

    The hash block size of hybrid models is the size of their smallest blocks, if states are kept at
    the ends of blocks. Source: vLLM ``v1/engine/core.py`` (`_initialize_kv_caches`),
    ``v1/core/kv_cache_utils.py`` (`resolve_kv_cache_block_sizes`).
    """
    engines = [dict(_LABEL.findall(s)) for s in text.splitlines() if s.startswith(_CACHE_METRIC)]
    same = {
        name: value
        for name, value in (engines[0] if engines else {}).items()
        if all(engine.get(name) == value for engine in engines)
    }
    options: _Options = {}
    size = same.get("block_size", _DEFAULT)
    if size != _DEFAULT:
        options["--block-size"] = [size]
    unit = same.get("prefix_match_unit")
    if unit == _DEFAULT and same.get("mamba_cache_mode") == "align":
        unit = size
    if unit is not None:
        options["--prefix-match-unit"] = None if unit == _DEFAULT else [unit]
    if "prefix_caching_hash_algo" in same:
        options["--prefix-caching-hash-algo"] = [same["prefix_caching_hash_algo"]]
    return options
