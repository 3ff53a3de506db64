"""Which fields requests have in an earlier release of vLLM.

A release reads over fields that it does not know. Two differences are left out: releases before
0.30 take cache salts of any letters and length, and their defaults of sampling parameters in an
answer are those of 0.33.0.

Source: the request schemas in the wheels of 0.13.0 to 0.33.0, every release in between among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from mmroute.engines.known import find_engine
from mmroute.engines.vllm.profile import VLLM

Release: TypeAlias = tuple[int, int]
"""The first two numbers of a release: within these, no field changed."""

_CHAT: Final = "/v1/chat/completions/render"
_COMPLETION: Final = "/v1/completions/render"
_MESSAGES: Final = "/v1/messages/render"
_RESPONSES: Final = "/v1/responses/render"
_GENERATION: Final[Mapping[str, Release]] = {
    "repetition_detection": (0, 17),
    "truncation_side": (0, 22),
    "return_token_offsets": (0, 25),
    "logprob_token_ids": (0, 26),
    "ec_transfer_params": (0, 26),
    "stream_interval": (0, 27),
    "session_id": (0, 28),
    "routed_experts_prompt_start": (0, 28),
    "watermarking": (0, 30),
    "mm_payload": (0, 32),
    "return_mm_kwargs": (0, 32),
    "return_weight_versions": (0, 33),
}
_SINCE: Final[Mapping[str, Mapping[str, Release]]] = {
    _CHAT: {
        **_GENERATION,
        "media_io_kwargs": (0, 18),
        "thinking_token_budget": (0, 19),
        "return_prompt_text": (0, 21),
    },
    _COMPLETION: {**_GENERATION, "thinking_token_budget": (0, 22), "bad_words": (0, 26)},
    "/tokenize": {"media_io_kwargs": (0, 18)},
    _MESSAGES: {
        "kv_transfer_params": (0, 19),
        "chat_template_kwargs": (0, 20),
        "output_config": (0, 23),
        "ec_transfer_params": (0, 26),
        "cache_salt": (0, 27),
        "vllm_xargs": (0, 29),
        "thinking": (0, 31),
        "mm_payload": (0, 32),
        "return_mm_kwargs": (0, 32),
        "watermarking": (0, 32),
    },
    _RESPONSES: {
        "skip_special_tokens": (0, 15),
        "include_stop_str_in_output": (0, 15),
        "prompt_cache_key": (0, 15),
        "repetition_penalty": (0, 16),
        "seed": (0, 16),
        "stop": (0, 16),
        "ignore_eos": (0, 16),
        "vllm_xargs": (0, 16),
        "structured_outputs": (0, 17),
        "media_io_kwargs": (0, 18),
        "kv_transfer_params": (0, 19),
        "presence_penalty": (0, 20),
        "frequency_penalty": (0, 20),
        "chat_template_kwargs": (0, 22),
        "include_reasoning": (0, 26),
        "ec_transfer_params": (0, 26),
        "session_id": (0, 28),
        "watermarking": (0, 30),
        "min_p": (0, 32),
        "mm_payload": (0, 32),
        "return_mm_kwargs": (0, 32),
        "stop_token_ids": (0, 32),
        "spaces_between_special_tokens": (0, 33),
        "prompt_cache_options": (0, 33),
        "prompt_cache_retention": (0, 33),
        "safety_identifier": (0, 33),
    },
}
"""Path -> field -> the first release that knows it, of those that 0.13 does not."""

_GONE: Final[Mapping[str, Mapping[str, tuple[Release, Release]]]] = {
    _CHAT: {
        "return_assistant_tokens_mask": ((0, 25), (0, 31)),
        "logits_processors": ((0, 13), (0, 17)),
    },
    _COMPLETION: {"logits_processors": ((0, 13), (0, 17))},
}
"""Path -> field that the newest release does not know -> the first that did, and the first not."""

_STOP: Final = {"stop": (str | list[str] | None, None)}
_OTHERWISE: Final[Mapping[str, Mapping[Release, Mapping[str, Any]]]] = {
    _CHAT: {
        (0, 28): _STOP,
        (0, 21): {"reasoning_effort": (Literal["none", "low", "medium", "high"] | None, None)},
        (0, 18): {"reasoning_effort": (Literal["low", "medium", "high"] | None, None)},
    },
    _COMPLETION: {(0, 28): _STOP},
    _MESSAGES: {(0, 28): {"stop_sequences": (list[str] | None, None)}},
    _RESPONSES: {(0, 28): _STOP},
}
"""Path -> release, the newest first -> fields that are of another type before it, with defaults."""


class Differences(NamedTuple):
    """How a request differs from that of the newest release.

    Attributes:
        unknown: fields that are read over.
        refused: fields that the release reads, and mmroute does not.
        changed: fields of another type, with their defaults.
    """

    unknown: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    changed: Mapping[str, Any] = {}


def differences(path: str, release: Release) -> Differences:
    """How the requests of a route differ in a release.

    Args:
        path: the path of the route.
        release: the release.
    """
    changed: dict[str, Any] = {}
    for before, fields in _OTHERWISE.get(path, {}).items():
        if release < before:
            changed |= fields
    since, gone = _SINCE.get(path, {}), _GONE.get(path, {})
    return Differences(
        frozenset(name for name, first in since.items() if release < first),
        frozenset(name for name, (first, end) in gone.items() if first <= release < end),
        changed,
    )


@cache
def release_of(backend: str) -> Release:
    """The release that a backend such as ``vllm==0.28`` names; the newest one for other engines.

    Raises:
        ModelError: `unknown_backend`.
    """
    engine = find_engine(backend)
    version = engine.version if engine.name == VLLM.name else VLLM.version
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
