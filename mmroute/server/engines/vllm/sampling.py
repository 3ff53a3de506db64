"""Makes the `sampling_params` of a render answer.

Routers do not read it; a caller that posts the answer on to ``/inference/v1/generate`` needs it.

Source: vLLM ``sampling_params.py`` (its fields in their order, those at their default left
out), ``to_sampling_params`` of the two request protocols, and ``get_max_tokens``; as observed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.completion import CompletionRequest
from mmroute.engines.vllm.bodies.fields import GenerationRequest, StructuredOutputsParams

_LOWEST_TEMPERATURE: Final = 0.01
_FINAL_ONLY, _DELTA = 2, 1
_NUMBERS: Final[Mapping[str, float]] = {
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
}  # fmt: skip
"""The value of each number that has no effect."""
_DEFAULT_TOKENS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class SamplingDefaults:
    """The defaults of a model's ``generation_config.json``."""

    values: Mapping[str, Any] = field(default_factory=dict)  # by vLLM's names
    max_tokens: int | None = None  # of an answer; None for as many as fit


def sampling_defaults(config: Mapping[str, Any]) -> SamplingDefaults:
    """The defaults of a ``generation_config.json``; values of a wrong type are left out."""
    numbers = {name: config.get(name) for name in _NUMBERS}
    values: dict[str, Any] = {
        name: value
        for name, value in numbers.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    if isinstance(config.get("skip_special_tokens"), bool):
        values["skip_special_tokens"] = config["skip_special_tokens"]
    most = config.get("max_new_tokens")
    return SamplingDefaults(values, most if type(most) is int else None)


def is_only_echo(request: GenerationRequest) -> bool:
    """Whether the answer is to have the prompt and no tokens of its own."""
    return isinstance(request, CompletionRequest) and bool(request.echo) and request.max_tokens == 0


def structured_outputs(request: GenerationRequest) -> dict[str, Any] | None:
    """The `structured_outputs` of a request, with its `response_format` and all keys of vLLM."""
    own, wanted = request.structured_outputs, request.response_format
    overrides: dict[str, Any] = {}
    match wanted:
        case {"type": "json_object"}:
            overrides["json_object"] = True
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            overrides["json"] = schema
        case {"type": "structural_tag"}:
            overrides["structural_tag"] = json.dumps(wanted)
    if own is None and not overrides:
        return None
    given = dataclasses.asdict(own or StructuredOutputsParams())
    return given | overrides | {"_backend": None, "_backend_was_auto": False}


def sampling_params(
    request: GenerationRequest, defaults: SamplingDefaults, left: int
) -> dict[str, Any]:
    """The `sampling_params` of an answer, in vLLM's order of fields."""
    numbers = {name: _number(request, name, defaults) for name in _NUMBERS}
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    answers, most, scores = _requested_output(request)
    if most is None:
        most = defaults.max_tokens
    tokens = 1 if is_only_echo(request) else left if most is None else min(left, most)
    skip = request.skip_special_tokens
    if skip is None:
        skip = defaults.values.get("skip_special_tokens", True)
    logprobs = None if request.logprob_token_ids else scores
    repetitions = request.repetition_detection
    greedy = numbers["temperature"] == 0
    if not greedy:
        numbers["temperature"] = max(numbers["temperature"], _LOWEST_TEMPERATURE)
    # vLLM adds transfer parameters to `extra_args` and removes them later: {} becomes null by that.
    transferred = request.kv_transfer_params or request.ec_transfer_params
    extra_args = request.vllm_xargs or (None if transferred else request.vllm_xargs)
    held_back = 0
    if stop and not request.include_stop_str_in_output:
        held_back = max(map(len, stop)) - 1
    optional: list[tuple[str, Any, Any]] = [  # name, value, the value that is left out
        ("n", answers, 1),
        ("presence_penalty", numbers["presence_penalty"], None),
        ("frequency_penalty", numbers["frequency_penalty"], None),
        ("repetition_penalty", numbers["repetition_penalty"], None),
        ("temperature", numbers["temperature"], None),
        ("watermarking", request.watermarking, None),
        ("top_p", None if greedy else numbers["top_p"], None),
        ("top_k", 0 if greedy else numbers["top_k"], 0),
        ("min_p", None if greedy else numbers["min_p"], None),
        ("seed", None if request.seed == -1 else request.seed, None),
        ("stop", stop, None),
        ("stop_token_ids", list(dict.fromkeys(request.stop_token_ids or ())), None),
        ("ignore_eos", request.ignore_eos, False),
        ("max_tokens", tokens, _DEFAULT_TOKENS),
        ("min_tokens", request.min_tokens, 0),
        ("logprobs", logprobs, None),
        ("prompt_logprobs", request.prompt_scores, None),
        ("logprob_token_ids", request.logprob_token_ids or None, None),
        ("skip_special_tokens", skip, True),
        ("spaces_between_special_tokens", request.spaces_between_special_tokens, True),
        ("include_stop_str_in_output", request.include_stop_str_in_output, False),
        ("output_kind", _DELTA if request.stream else _FINAL_ONLY, None),
        ("stream_interval", request.stream_interval, None),
        ("skip_clone", True, None),
        ("output_text_buffer_length", held_back, 0),
        ("structured_outputs", structured_outputs(request), None),
        ("logit_bias", _logit_bias(request.logit_bias), None),
        ("allowed_token_ids", request.allowed_token_ids, None),
        ("extra_args", extra_args, None),
        ("bad_words", list(dict.fromkeys(request.bad_words)), None),
        ("skip_reading_prefix_cache", not request.reads_cache, None),
        ("thinking_token_budget", request.thinking_token_budget, None),
        ("repetition_detection", repetitions and dataclasses.asdict(repetitions), None),
        ("routed_experts_prompt_start", request.routed_experts_prompt_start, 0),
    ]
    return {name: value for name, value, left_out in optional if value != left_out}


def _requested_output(request: GenerationRequest) -> tuple[int, int | None, int | None]:
    """The number of answers, the most tokens of each, and the scores of each token."""
    answers: int | None = getattr(request, "n", 1)
    if isinstance(request, CompletionRequest):
        return 1 if answers is None else answers, request.max_tokens, request.logprobs
    chat = cast("ChatCompletionRequest", request)
    most = chat.max_tokens if chat.max_completion_tokens is None else chat.max_completion_tokens
    scores = chat.top_logprobs if chat.logprobs else None
    return 1 if answers is None else answers, most, scores


def _number(request: GenerationRequest, name: str, defaults: SamplingDefaults) -> float:
    given: float | None = getattr(request, name)
    if given is not None:
        return given
    default = defaults.values.get(name, _NUMBERS[name])
    return int(default) if name == "top_k" else float(default)


def _logit_bias(biases: Mapping[str, float] | None) -> dict[str, float] | None:
    """The biases by token ID, each within 100 of 0."""
    if biases is None:
        return None
    return {_token(key): min(100.0, max(-100.0, bias)) for key, bias in biases.items()}


def _token(key: str) -> str:
    try:
        return str(int(key))
    except ValueError:  # which the engine refuses
        return key
