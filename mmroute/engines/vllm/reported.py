"""Asks a running vLLM for its options. None tells PYTHONHASHSEED or its chat template."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

from mmroute.engine import AdoptedLine
from mmroute.engines.running import ServedModel, ask_engine, served_models
from mmroute.engines.vllm.serve_command import joined, parse_command
from mmroute.engines.vllm.serve_settings import DECIDING
from mmroute.net.transport import Transport
from mmroute.release import PYTHON

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


class ReportedOptions(NamedTuple):
    """The options that are not the default as a command line, and the names of all reported."""

    line: str
    names: frozenset[str]


def adopted_line(transport: Transport, given: str, config: str | None) -> AdoptedLine:
    """See `EngineSettings.adopted`."""
    reported = ask_options(transport)
    command = parse_command(given, config=config)
    known = {*reported.names, *(f"--{name}" for name in command.options), *command.environment}
    return AdoptedLine(reported.line, joined(reported.line, given), sorted(DECIDING - known))


def ask_options(transport: Transport) -> ReportedOptions:
    """The options of a server's command line, as far as the server reports them.

    Source: vLLM ``entrypoints/serve/dev/server_info/api_router.py``, ``config/cache.py``
    (`metrics_info`).
    """
    info = transport.request("GET", "/server_info?config_format=json").body
    info = info if isinstance(info, dict) else {}
    environment = info.get("vllm_env") or {}
    variables = {name: environment[name] for name in _ENVIRONMENT if name in environment}
    words = [
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in variables.items()
        if value is not None
    ]
    if _RUST not in variables and ask_engine(transport).frontend != PYTHON:
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


def ask_cache(transport: Transport) -> str:
    """The options of the engine's cache in a server's metrics; empty if the metrics have none."""
    return shlex.join(_words(_metrics_options(transport)))


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
