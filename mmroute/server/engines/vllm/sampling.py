"""Makes the `sampling_params` of a render answer.

Routers do not read it; a caller that posts the answer on to ``/inference/v1/generate`` needs it.

Source: vLLM ``sampling_params.py`` (its fields in their order, those at their default left
out), ``to_sampling_params`` of the two request protocols, and ``get_max_tokens``; as observed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mmroute.engines.vllm.bodies.errors import refused, require
from mmroute.engines.vllm.bodies.fields import (
    GenerationRequest,
    RequestedOutput,
    ResponseFormat,
    StructuredOutputsParams,
)
from mmroute.errors import quoted

_MOST_ANSWERS: Final = 16384
_LOWEST_TEMPERATURE: Final = 0.01
_FINAL_ONLY, _DELTA = 2, 1
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
# The value without effect, the least and the greatest one, and vLLM's words for that range.
_NUMBERS: Final[Mapping[str, tuple[float, float, float, str]]] = {
    "presence_penalty": (0.0, -2.0, 2.0, "in [-2, 2]"),
    "frequency_penalty": (0.0, -2.0, 2.0, "in [-2, 2]"),
    "repetition_penalty": (1.0, math.ulp(0.0), math.inf, "greater than zero"),
    "temperature": (1.0, 0.0, 2.0, "in [0, 2]"),
    "top_p": (1.0, math.ulp(0.0), 1.0, "in (0, 1]"),
    "top_k": (0, -1, math.inf, "0 (disable), or at least 1"),
    "min_p": (0.0, 0.0, 1.0, "in [0, 1]"),
}
_NAMED_IN_PARAM: Final = ("temperature", "top_p")
_DEFAULT_TOKENS: Final = 16
_UNLIMITED: Final = 1 << 40
# Fields of a chat that change nothing here; others are rarely set.
_NOT_READ: Final = frozenset({
    "messages", "model", "mm_payload", "tools", "tool_choice", "request_id", "cache_salt",
    "chat_template_kwargs", "add_generation_prompt", "priority", "user",
})  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class SamplingDefaults:
    """The defaults of a model's ``generation_config.json``.

    Attributes:
        values: the default of each parameter, by vLLM's name.
        max_tokens: the most tokens of an answer; None for as many as fit.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None


def sampling_defaults(config: Mapping[str, Any]) -> SamplingDefaults:
    """The defaults of a ``generation_config.json``; values of a wrong type are left out."""
    values = {name: config[name] for name in _NUMBERS if isinstance(config.get(name), int | float)}
    if isinstance(config.get("skip_special_tokens"), bool):
        values["skip_special_tokens"] = config["skip_special_tokens"]
    most = config.get("max_new_tokens")
    return SamplingDefaults(values, most if type(most) is int else None)


def check_output_budget(most: int | None, name: str, max_model_len: int) -> None:
    """Refuse a request for more output tokens than the context has, whatever its prompt is.

    Args:
        most: the most tokens that the request asks for; None for as many as fit.
        name: the field that has this number.
        max_model_len: the number of tokens of the longest context.

    Raises:
        ApiError: 400.
    """
    if most is not None and most > max_model_len:
        raise refused(
            f"{name}={most} cannot be greater than max_model_len={max_model_len}. Please request "
            "fewer output tokens.",
            name,
            most,
        )


def sampling_params(
    request: GenerationRequest, defaults: SamplingDefaults, left: int
) -> dict[str, Any]:
    """The `sampling_params` of an answer, in vLLM's order of fields.

    Args:
        request: the validated request.
        defaults: the model's defaults.
        left: the number of tokens that the context has room for behind the prompt.

    Raises:
        ApiError: 400: the engine refuses a value, or a value is too large for this prompt.
    """
    plain = _plain(request, defaults, left)
    if plain is not None:
        return {**plain, "max_tokens": left}
    return _sampling_params(request, defaults, left)


def check_sampling_params(
    request: GenerationRequest, defaults: SamplingDefaults, left: int
) -> None:
    """Refuse what `sampling_params` refuses, which has the same arguments.

    Raises:
        ApiError: 400.
    """
    if _plain(request, defaults, left) is None:
        _checked(request, defaults, left)


def structured_outputs(request: GenerationRequest) -> dict[str, Any] | None:
    """The `structured_outputs` of a request, with its `response_format` and all keys of vLLM.

    Raises:
        ApiError: 400: there is more than one constraint, or none.
    """
    own, wanted = request.structured_outputs, request.response_format
    overrides: dict[str, Any] = {}
    if isinstance(wanted, ResponseFormat):
        if wanted.type == "json_object":
            overrides["json_object"] = True
        elif wanted.type == "json_schema":
            overrides["json"] = wanted.json_schema and wanted.json_schema.json_schema
    elif wanted is not None:
        overrides["structural_tag"] = json.dumps(wanted.model_dump(by_alias=True))
    if overrides:
        given = {} if own is None else dataclasses.asdict(own)
        own = StructuredOutputsParams(**given | overrides)
    if own is None:
        return None
    return dataclasses.asdict(own) | {"_backend": None, "_backend_was_auto": False}


def _plain(
    request: GenerationRequest, defaults: SamplingDefaults, left: int
) -> dict[str, Any] | None:
    """The parameters of a request that sets none, but for `max_tokens`; None for other requests."""
    if not request.model_fields_set <= _NOT_READ or left <= _DEFAULT_TOKENS:
        return None
    plain = _without_options(type(request), defaults)
    return plain if plain.get("max_tokens") == _UNLIMITED else None


@functools.cache
def _without_options(kind: type[GenerationRequest], defaults: SamplingDefaults) -> dict[str, Any]:
    """The parameters of a request that sets none of them, without the limit of the context."""
    return _sampling_params(kind.model_construct(), defaults, _UNLIMITED)


class _Checked(NamedTuple):
    """The parameters that can be refused, after their checks."""

    numbers: dict[str, float]
    wanted: RequestedOutput
    max_tokens: int
    stop: list[str]
    structured: dict[str, Any] | None
    biases: dict[str, float] | None


def _checked(request: GenerationRequest, defaults: SamplingDefaults, left: int) -> _Checked:
    numbers = {name: _number(request, name, defaults) for name in _NUMBERS}
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    wanted = request.requested_output()
    structured = structured_outputs(request)
    biases = _logit_bias(request.logit_bias)
    max_tokens = _tokens_of_answer(wanted, defaults, left)
    _check_values(request, numbers, wanted.answers, max_tokens, stop)
    return _Checked(numbers, wanted, max_tokens, stop, structured, biases)


def _sampling_params(
    request: GenerationRequest, defaults: SamplingDefaults, left: int
) -> dict[str, Any]:
    numbers, wanted, max_tokens, stop, structured, biases = _checked(request, defaults, left)
    skip = request.skip_special_tokens
    if skip is None:
        skip = defaults.values.get("skip_special_tokens", True)
    logprobs = None if request.logprob_token_ids else wanted.logprobs
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
        ("n", wanted.answers, 1),
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
        ("max_tokens", max_tokens, _DEFAULT_TOKENS),
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
        ("structured_outputs", structured, None),
        ("logit_bias", biases, None),
        ("allowed_token_ids", request.allowed_token_ids, None),
        ("extra_args", extra_args, None),
        ("bad_words", list(dict.fromkeys(request.bad_words)), None),
        ("skip_reading_prefix_cache", not request.reads_cache, None),
        ("thinking_token_budget", request.thinking_token_budget, None),
        ("repetition_detection", repetitions and dataclasses.asdict(repetitions), None),
        ("routed_experts_prompt_start", request.routed_experts_prompt_start, 0),
    ]
    return {name: value for name, value, left_out in optional if value != left_out}


def _tokens_of_answer(request: RequestedOutput, defaults: SamplingDefaults, left: int) -> int:
    if request.only_echo:
        return 1
    most = defaults.max_tokens if request.max_tokens is None else request.max_tokens
    return left if most is None else min(left, most)


def _number(request: GenerationRequest, name: str, defaults: SamplingDefaults) -> float:
    given: float | None = getattr(request, name)
    if given is not None:
        return given
    default = defaults.values.get(name, _NUMBERS[name][0])
    return int(default) if name == "top_k" else float(default)


def _check_values(
    request: GenerationRequest,
    numbers: Mapping[str, float],
    n: int,
    max_tokens: int,
    stop: list[str],
) -> None:
    """Refuse the values that vLLM's `SamplingParams` refuse, in the same order."""
    require(1 <= n <= _MOST_ANSWERS, f"n must be from 1 to {_MOST_ANSWERS}, got {n}.")
    _check_extra_args(request)
    for name, (_, low, high, words) in _NUMBERS.items():
        value, param = numbers[name], name if name in _NAMED_IN_PARAM else None
        within = low <= value <= high and math.isfinite(value)
        require(within, f"{name} must be {words}, got {value}.", param, value)
    at_least_one = f"max_tokens must be at least 1, got {max_tokens}."
    require(max_tokens > 0, at_least_one, "max_tokens", max_tokens)
    fits = 0 <= request.min_tokens <= max_tokens
    require(fits, f"min_tokens must be in [0, max_tokens={max_tokens}].")
    require(all(stop), "stop cannot contain an empty string.")
    require(all(request.bad_words), "bad_words cannot contain an empty string.")
    greedy = numbers["temperature"] == 0
    require(n == 1 or not greedy, f"n must be 1 when using greedy sampling, got {n}.")


def _logit_bias(biases: Mapping[str, float] | None) -> dict[str, float] | None:
    """The biases by token ID, each within 100 of 0."""
    if biases is None:
        return None
    try:
        ids = [int(key) for key in biases]
    except ValueError:
        raise refused(
            "logit_bias contains key(s) that cannot be converted to integer token IDs: "
            f"{quoted(list(biases))}",
            "logit_bias",
        ) from None
    return {
        str(token_id): min(100.0, max(-100.0, bias))
        for token_id, bias in zip(ids, biases.values(), strict=True)
    }


def _check_extra_args(request: GenerationRequest) -> None:
    """Refuse integers that MessagePack cannot hold, in which these fields go to the engine."""
    pending: list[object] = [
        request.vllm_xargs, request.kv_transfer_params, request.ec_transfer_params,
    ]  # fmt: skip
    while pending:
        value = pending.pop()
        require(
            not isinstance(value, int) or _LOWEST <= value <= _HIGHEST,
            "extra_args integers must be between -2**63 and 2**64 - 1.",
            "extra_args",
        )
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
