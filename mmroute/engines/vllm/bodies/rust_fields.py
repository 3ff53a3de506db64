"""The fields of requests that vLLM's Rust frontend takes otherwise than the Python one.

It turns no text into a number and no number into a boolean, and some options it does not have.

Source: vLLM ``rust/src/server/src/routes/openai/chat_completions/types.rs`` and ``validate.rs``,
the same of ``completions``, and ``rust/src/text/src/lower/sampling.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Strict, StrictBool, StrictStr

from mmroute.engines.vllm.bodies.fields import MAX_INT64, RepetitionDetectionParams

_MAX_INT32: Final = 2**31 - 1


def _integer(least: int, most: int) -> Any:
    return Annotated[int, Strict(), Field(ge=least, le=most)]


def _number(**bounds: Any) -> Any:
    return Annotated[float, Strict(), Field(**bounds)]


def _check_repetitions(value: object) -> object:
    """Refuse an object without both numbers that have no default here, and other than integers."""
    if isinstance(value, Mapping):
        numbers = {"min_pattern_size": 0, **value}
        for name in ("max_pattern_size", "min_pattern_size", "min_count"):
            if type(numbers.get(name)) is not int:
                raise ValueError(f"{name} must be an integer")
    return value


_MAX_UINT32: Final = 2**32 - 1
_Unsigned: TypeAlias = _integer(0, _MAX_UINT32)  # type: ignore[valid-type]  # it is one
_Integer: TypeAlias = _integer(-_MAX_INT32 - 1, _MAX_INT32)  # type: ignore[valid-type]  # it is one
_Ids: TypeAlias = Annotated[list[_Unsigned], Field(fail_fast=True)]
_Penalty: TypeAlias = _number(ge=-2, le=2)  # type: ignore[valid-type]  # it is one

_SHARED: Final[Mapping[str, Any]] = {
    "frequency_penalty": _Penalty | None,
    "presence_penalty": _Penalty | None,
    "logit_bias": dict[str, _number()] | None,  # type: ignore[misc]  # it is a type
    "seed": _integer(-MAX_INT64 - 1, MAX_INT64) | None,
    "stream": StrictBool | None,
    "temperature": _number(ge=0, le=2) | None,
    "top_p": _number(gt=0, le=1) | None,
    "use_beam_search": Literal[False],
    "top_k": _integer(-1, _MAX_UINT32) | None,
    "min_p": _number(ge=0, le=1) | None,
    "length_penalty": _number(ge=1, le=1),
    "stop_token_ids": _Ids | None,
    "include_stop_str_in_output": StrictBool,
    "ignore_eos": StrictBool,
    "min_tokens": _Unsigned,
    "skip_special_tokens": StrictBool,
    "spaces_between_special_tokens": Literal[True],
    "truncate_prompt_tokens": _integer(-1, MAX_INT64) | None,
    "prompt_logprobs": _integer(-1, _MAX_INT32) | None,
    "logprob_token_ids": _Ids | None,
    "allowed_token_ids": Annotated[_Ids, Field(min_length=1)] | None,
    "priority": _Integer,
    "repetition_detection": Annotated[
        RepetitionDetectionParams | None, BeforeValidator(_check_repetitions)
    ],
    "return_tokens_as_token_ids": StrictBool | None,
    "return_token_ids": StrictBool | None,
    "return_weight_versions": Literal[False] | None,
    "stream_interval": _integer(1, _MAX_UINT32) | None,
    "n": _integer(0, 1) | None,
    "add_special_tokens": StrictBool,
}
RUST_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/chat/completions/render": {
        **_SHARED,
        "logprobs": StrictBool | None,
        "top_logprobs": _integer(-1, _MAX_INT32) | None,
        "max_tokens": _integer(1, _MAX_UINT32) | None,
        "max_completion_tokens": _integer(1, _MAX_UINT32) | None,
        "n": _integer(1, 1) | None,
        "repetition_penalty": _number(gt=0, le=2) | None,
        "include_reasoning": StrictBool,
        "parallel_tool_calls": StrictBool | None,
        "echo": StrictBool,
        "add_generation_prompt": StrictBool | None,
        "continue_final_message": StrictBool,
        "documents": list[Any] | None,
        "return_prompt_text": Literal[False] | None,
    },
    "/v1/completions/render": {
        **_SHARED,
        "prompt": StrictStr | _Ids,
        "echo": StrictBool | None,
        "logprobs": _integer(-1, _MAX_INT32) | None,
        "max_tokens": _Unsigned | None,
        "repetition_penalty": _number(gt=0) | None,
        "suffix": None,
        "prompt_embeds": None,
    },
}
"""Path -> field -> its type."""
