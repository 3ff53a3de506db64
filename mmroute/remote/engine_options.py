"""How a running vLLM was started, as far as it tells.

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
from http import HTTPStatus
from typing import Any, Final

from mmroute.net.transport import Transport
from mmroute.remote.model_list import ServedModel, served_models

__all__ = ["ask_options"]

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
    words += ["vllm", "serve"]
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
