"""What a running server tells: its engine, its models, and how it was started.

Every server tells its model string, names, adapters and longest context. One that was started with
``VLLM_SERVER_DEV_MODE=1`` has a route for its whole configuration. None tells PYTHONHASHSEED or
its chat template. ``vllm launch render`` has no cache, and shows the defaults of one.
Source: vLLM 0.33.0 ``entrypoints/serve/dev/server_info/api_router.py``,
``entrypoints/openai/models/serving.py``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from mmroute.engines.running import Evidence, RunningEngine, running_engine
from mmroute.errors import InexactError, Reason
from mmroute.net.transport import Transport

__all__ = ["ServedModel", "ask_engine", "ask_options", "served_models"]

_VLLM_VERSION: Final = "/version"  # of mmroute serve as well, which names the engine it matches
_SGLANG_VERSION: Final = "/server_info"
_MODELS: Final = "/v1/models"
_INFO: Final = "/server_info?config_format=json"
_GENERATES: Final = "/v1/chat/completions"  # which vllm launch render does not
_OF_CACHES: Final = ("cache_config", "scheduler_config")
# Where the configuration has the value of an option.
_CONFIGURED: Final[Mapping[str, tuple[str, str]]] = {
    "--tokenizer": ("model_config", "tokenizer"),
    "--tokenizer-mode": ("model_config", "tokenizer_mode"),
    "--revision": ("model_config", "revision"),
    "--hf-overrides": ("model_config", "hf_overrides"),
    "--model-impl": ("model_config", "model_impl"),
    "--allowed-media-domains": ("model_config", "allowed_media_domains"),
    "--limit-mm-per-prompt": ("multimodal_config", "limit_per_prompt"),
    "--language-model-only": ("multimodal_config", "language_model_only"),
    "--media-io-kwargs": ("multimodal_config", "media_io_kwargs"),
    "--mm-processor-kwargs": ("multimodal_config", "mm_processor_kwargs"),
    "--mm-processor-cache-gb": ("multimodal_config", "mm_processor_cache_gb"),
    "--mm-hasher-algorithm": ("multimodal_config", "mm_hasher_algorithm"),
    "--interleave-mm-strings": ("multimodal_config", "interleave_mm_strings"),
    "--video-pruning-rate": ("multimodal_config", "video_pruning_rate"),
    "--block-size": ("cache_config", "block_size"),
    "--prefix-match-unit": ("cache_config", "prefix_match_unit"),
    "--prefix-caching-hash-algo": ("cache_config", "prefix_caching_hash_algo"),
    "--max-num-batched-tokens": ("scheduler_config", "max_num_batched_tokens"),
    "--enable-tower-connector-lora": ("lora_config", "enable_tower_connector_lora"),
    "--decode-context-parallel-size": ("parallel_config", "decode_context_parallel_size"),
    "--prefill-context-parallel-size": ("parallel_config", "prefill_context_parallel_size"),
    "--speculative-config": ("", "speculative_config"),
}
_ENVIRONMENT: Final = (
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_MAX_IMAGE_PIXELS",
    "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES", "VLLM_MEDIA_CONNECTOR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model or an adapter, as its server lists it.

    Attributes:
        parent: the model that it is an adapter of; None if it is none.
        root: the engine's model string, or the adapter's path; empty if the server tells none.
            Source: vLLM 0.33.0 ``entrypoints/openai/models/serving.py``.
        max_model_len: its longest context; None if the server does not tell it.
    """

    parent: str | None
    root: str
    max_model_len: int | None


def served_models(transport: Transport) -> Mapping[str, ServedModel]:
    """Its models and adapters by their names, at least one.

    Raises:
        InexactError: `remote_unavailable`: it does not say.
    """
    reply = transport.ask("GET", _MODELS)
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE, f"{transport.name} wants an API key, or another one"
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
    """The engine of a server as it names itself; unknown if it does not.

    Raises:
        InexactError: `remote_unavailable`: it cannot be reached.
    """
    for route, usual in ((_VLLM_VERSION, "vllm"), (_SGLANG_VERSION, "sglang")):
        body = transport.ask("GET", route).body
        if isinstance(body, dict) and isinstance(body.get("version"), str):
            running = running_engine(str(body.get("engine", usual)), body["version"])
            if body.get("mmroute"):
                return replace(running, mmroute=str(body["mmroute"]), evidence=Evidence.UNKNOWN)
            return running
    return running_engine("engine", "")


def ask_options(transport: Transport) -> str:
    """The part of its command line that a server tells, variables in front; may be empty.

    Raises:
        InexactError: `remote_unavailable`: it cannot be reached.
    """
    info = transport.ask("GET", _INFO).body
    info = info if isinstance(info, dict) else {}
    environment = info.get("vllm_env") or {}
    words = [
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name in _ENVIRONMENT
        if (value := environment.get(name)) is not None
    ]
    words += _of_models(served_models(transport))
    configuration = info.get("vllm_config")
    if isinstance(configuration, dict):
        left_out: tuple[str, ...] = ()
        if transport.ask("GET", _GENERATES).status == HTTPStatus.NOT_FOUND:
            left_out = _OF_CACHES
        words += _of_configuration(configuration, left_out)
    return shlex.join(words)


def _of_models(models: Mapping[str, ServedModel]) -> Iterator[str]:
    own = {name: model for name, model in models.items() if model.parent is None}
    for first in list(own.values())[:1]:
        if first.root:
            yield from ("--model", first.root, "--served-model-name", *own)
        if first.max_model_len is not None:
            yield from ("--max-model-len", str(first.max_model_len))
    adapters = [f"{n}={model.root}" for n, model in models.items() if model.parent and model.root]
    if adapters:
        yield from ("--lora-modules", *adapters)


def _of_configuration(configuration: Mapping[str, Any], left_out: tuple[str, ...]) -> Iterator[str]:
    model = configuration.get("model_config") or {}
    parts = {
        **configuration,
        "": configuration,
        "multimodal_config": model.get("multimodal_config"),
    }
    for option, (part, name) in _CONFIGURED.items():
        value = (parts.get(part) or {}).get(name)
        if value is None or value is False or value in ({}, []) or part in left_out:
            continue
        if part == "parallel_config" and value == 1:
            continue
        yield option
        if isinstance(value, dict):
            yield json.dumps(value, default=str)
        elif isinstance(value, list):
            yield from map(str, value)
        elif value is not True:
            yield str(value)
