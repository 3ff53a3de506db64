"""`sampling_params` of a render answer: what the engine will be asked to do.

Routers do not read it; a caller that posts the answer on to ``/inference/v1/generate`` needs it.

Source: vLLM 0.33.0 ``sampling_params.py`` (its fields in their order, those at their default left
out), ``to_sampling_params`` of the two request protocols, and ``get_max_tokens``; as observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mmroute.server.errors import bad_request
from mmroute.server.fields import (
    Body,
    boolean,
    bounded,
    fits,
    integer,
    list_of,
    number,
    read,
    read_nullable,
    text,
)
from mmroute.server.sampling_fields import (
    read_extra_args,
    read_logit_bias,
    read_repetition_detection,
    read_stop,
    read_structured_outputs,
    read_thinking_budget,
)

__all__ = ["SamplingDefaults", "SamplingRequest", "sampling_defaults"]

_COMPLETION_TOKENS: Final = 16
_MOST_ANSWERS: Final = 16384
_LOWEST_TEMPERATURE: Final = 0.01
_GREEDY: Final = 1e-5
_FINAL_ONLY, _DELTA = 2, 1
_INT64: Final = (-(2**63), 2**63 - 1)
_NEUTRAL: Final[Mapping[str, float]] = {
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "temperature": 1.0, "top_p": 1.0, "min_p": 0.0,
}  # fmt: skip
_FROM_MODEL: Final = (*_NEUTRAL, "top_k", "max_new_tokens", "skip_special_tokens")
# Where a value must lie; vLLM names the field in `param` for some of them only.
_RANGES: Final[Mapping[str, tuple[float, float, bool]]] = {
    "presence_penalty": (-2.0, 2.0, False),
    "frequency_penalty": (-2.0, 2.0, False),
    "repetition_penalty": (math.ulp(0.0), math.inf, False),
    "temperature": (0.0, 2.0, True),
    "top_p": (math.ulp(0.0), 1.0, True),
    "min_p": (0.0, 1.0, False),
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a model's ``generation_config.json`` changes.

    Attributes:
        values: by vLLM's names.
        max_tokens: of an answer; None for as many as fit.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None


def sampling_defaults(config: Mapping[str, Any]) -> SamplingDefaults:
    """The defaults in a ``generation_config.json``; what is of another kind is not a default."""
    found = {name: config[name] for name in _FROM_MODEL if config.get(name) is not None}
    most = found.pop("max_new_tokens", None)
    return SamplingDefaults(
        {
            name: value
            for name, value in found.items()
            if fits(boolean if name == "skip_special_tokens" else number, value)
        },
        most if type(most) is int else None,
    )


class SamplingRequest:
    """The sampling fields of a request, checked before anything is rendered.

    Args:
        body: the request.
        defaults: of the model.
        chat: whether it is a chat; completions have other defaults.

    Raises:
        ApiError: 400: a field is of another kind.
    """

    def __init__(self, body: Body, defaults: SamplingDefaults, *, chat: bool) -> None:
        self._body = body
        self._defaults = defaults
        self._chat = chat
        self._n = read_nullable(body, "n", integer) if chat else read(body, "n", integer, 1)
        self._floats = {name: self._with_default(name) for name in _NEUTRAL}
        top_k = read_nullable(body, "top_k", integer)
        self._top_k = int(defaults.values.get("top_k", 0)) if top_k is None else top_k
        self._seed = read_nullable(body, "seed", bounded(integer, *_INT64))
        self._stop = read_stop(body.get("stop"))
        self._stop_token_ids = read_nullable(body, "stop_token_ids", list_of(integer)) or []
        no_words: list[str] = []
        self._bad_words = read(body, "bad_words", list_of(text), no_words)
        self._stream = bool(read_nullable(body, "stream", boolean))
        self.echo = bool(read_nullable(body, "echo", boolean))
        self._rest = self._others()
        self._most, self._most_name = self._max_tokens()

    def params(self, max_model_len: int, prompt_length: int) -> dict[str, Any]:
        """The object, in the order of vLLM's own.

        Raises:
            ApiError: 400: a value the engine refuses, or one too large for this prompt.
        """
        max_tokens = self._tokens_of_answer(max_model_len, prompt_length)
        self._check(max_tokens)
        found = self._floats
        temperature = found["temperature"]
        if 0 < temperature < _LOWEST_TEMPERATURE:
            temperature = _LOWEST_TEMPERATURE
        greedy = temperature < _GREEDY
        rest, n = self._rest, 1 if self._n is None else self._n
        if greedy and n > 1:
            raise bad_request(f"n must be 1 when using greedy sampling, got {n}.")
        held_back = (
            0 if rest["include_stop_str_in_output"] else max(map(len, self._stop), default=1) - 1
        )
        optional: list[tuple[str, Any, Any]] = [  # name, value, the value that is left out
            ("n", n, 1),
            ("presence_penalty", found["presence_penalty"], None),
            ("frequency_penalty", found["frequency_penalty"], None),
            ("repetition_penalty", found["repetition_penalty"], None),
            ("temperature", temperature, None),
            ("watermarking", rest["watermarking"], None),
            ("top_p", None if greedy else found["top_p"], None),
            ("top_k", 0 if greedy else self._top_k, 0),
            ("min_p", None if greedy else found["min_p"], None),
            ("seed", None if self._seed == -1 else self._seed, None),
            ("stop", self._stop, None),
            ("stop_token_ids", list(dict.fromkeys(self._stop_token_ids)), None),
            ("ignore_eos", rest["ignore_eos"], False),
            ("max_tokens", max_tokens, _COMPLETION_TOKENS),
            ("min_tokens", rest["min_tokens"], 0),
            ("logprobs", self._logprobs(), None),
            ("prompt_logprobs", self._prompt_logprobs(), None),
            ("logprob_token_ids", rest["logprob_token_ids"] or None, None),
            ("skip_special_tokens", rest["skip_special_tokens"], True),
            ("spaces_between_special_tokens", rest["spaces_between_special_tokens"], True),
            ("include_stop_str_in_output", rest["include_stop_str_in_output"], False),
            ("output_kind", _DELTA if self._stream else _FINAL_ONLY, None),
            ("stream_interval", rest["stream_interval"], None),
            ("skip_clone", True, None),
            ("output_text_buffer_length", held_back, 0),
            ("structured_outputs", rest["structured_outputs"], None),
            ("logit_bias", rest["logit_bias"], None),
            ("allowed_token_ids", rest["allowed_token_ids"], None),
            ("extra_args", rest["vllm_xargs"], None),
            ("bad_words", list(dict.fromkeys(self._bad_words)), None),
            ("skip_reading_prefix_cache", self._prompt_logprobs() is not None, None),
            ("thinking_token_budget", rest["thinking_token_budget"], None),
            ("repetition_detection", rest["repetition_detection"], None),
            ("routed_experts_prompt_start", rest["routed_experts_prompt_start"], 0),
        ]
        return {name: value for name, value, left_out in optional if value != left_out}

    def check_prompt_budget(self, max_model_len: int) -> None:
        """Refuse more tokens of answer than the context has, before the prompt is looked at.

        Raises:
            ApiError: 400.
        """
        if self._most is not None and self._most > max_model_len:
            raise bad_request(
                f"{self._most_name}={self._most} cannot be greater than max_model_len="
                f"{max_model_len}. Please request fewer output tokens.",
                self._most_name,
            )

    def _with_default(self, name: str) -> float:
        given = read_nullable(self._body, name, number)
        if given is not None:
            return given
        return float(self._defaults.values.get(name, _NEUTRAL[name]))

    def _max_tokens(self) -> tuple[int | None, str]:
        most = read_nullable(self._body, "max_tokens", integer)
        if not self._chat:
            return _COMPLETION_TOKENS if most is None else most, "max_tokens"
        newer = read_nullable(self._body, "max_completion_tokens", integer)
        return (most, "max_tokens") if newer is None else (newer, "max_completion_tokens")

    def _tokens_of_answer(self, max_model_len: int, prompt_length: int) -> int:
        if self.echo and self._most == 0 and not self._chat:
            return 1
        wanted = self._defaults.max_tokens if self._most is None else self._most
        left = max_model_len - prompt_length
        return left if wanted is None else min(left, wanted)

    def _check(self, max_tokens: int) -> None:
        n = 1 if self._n is None else self._n
        if not 1 <= n <= _MOST_ANSWERS:
            raise bad_request(f"n must be from 1 to {_MOST_ANSWERS}, got {n}.")
        for name, (low, high, named) in _RANGES.items():
            value = self._floats[name]
            if not (low <= value <= high and math.isfinite(value)):
                raise bad_request(
                    f"{name} must be in [{low:g}, {high:g}], got {value}.", name if named else None
                )
        if self._top_k < -1:
            raise bad_request(f"top_k must be 0 (disable), or at least 1, got {self._top_k}.")
        if max_tokens < 1:
            raise bad_request(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens")
        if not 0 <= self._rest["min_tokens"] <= max_tokens:
            raise bad_request(f"min_tokens must be in [0, max_tokens={max_tokens}].")
        if not all(self._stop):
            raise bad_request("stop cannot contain an empty string.")
        if not all(self._bad_words):
            raise bad_request("bad_words cannot contain an empty string.")

    def _logprobs(self) -> int | None:
        wanted: int | None
        if self._chat:
            most = read_nullable(self._body, "top_logprobs", integer) or 0
            wanted = most if read_nullable(self._body, "logprobs", boolean) else None
        else:
            wanted = read_nullable(self._body, "logprobs", integer)
        return None if self._rest["logprob_token_ids"] else wanted

    def _prompt_logprobs(self) -> int | None:
        given = read_nullable(self._body, "prompt_logprobs", integer)
        if given is not None or not self.echo:
            return given
        name = "top_logprobs" if self._chat else "logprobs"
        found = read_nullable(self._body, name, integer)
        return (found or 0) if self._chat else found

    def _others(self) -> dict[str, Any]:
        """What is carried as it is, with the defaults vLLM has for it."""
        body = self._body
        skip = read_nullable(body, "skip_special_tokens", boolean)
        return {
            "watermarking": read_nullable(body, "watermarking", boolean),
            "ignore_eos": read(body, "ignore_eos", boolean, False),
            "min_tokens": read(body, "min_tokens", integer, 0),
            "logprob_token_ids": read_nullable(body, "logprob_token_ids", list_of(integer)),
            "skip_special_tokens": self._defaults.values.get("skip_special_tokens", True)
            if skip is None
            else skip,
            "spaces_between_special_tokens": read(
                body, "spaces_between_special_tokens", boolean, True
            ),
            "include_stop_str_in_output": read(body, "include_stop_str_in_output", boolean, False),
            "stream_interval": read_nullable(body, "stream_interval", bounded(integer, low=1)),
            "structured_outputs": read_structured_outputs(body),
            "logit_bias": read_logit_bias(body),
            "allowed_token_ids": read_nullable(body, "allowed_token_ids", list_of(integer)),
            "vllm_xargs": read_extra_args(body),
            "thinking_token_budget": read_thinking_budget(body),
            "repetition_detection": read_repetition_detection(body),
            "routed_experts_prompt_start": read(
                body, "routed_experts_prompt_start", bounded(integer, low=0), 0
            ),
        }
