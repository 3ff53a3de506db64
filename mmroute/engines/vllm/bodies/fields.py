"""The fields that requests of several routes have, with vLLM's names, defaults and laxness.

Source: vLLM ``sampling_params.py``, ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)
from pydantic.dataclasses import dataclass

CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
OutputMode: TypeAlias = Literal["tokens", "text", "derender"]
MAX_INT64: Final = 2**63 - 1
Integers: TypeAlias = Annotated[list[int], Field(fail_fast=True)]
_Texts: TypeAlias = Annotated[list[str], Field(fail_fast=True)]
TokenIdList: TypeAlias = Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)]
Stop: TypeAlias = str | list[str] | None
_Truncation: TypeAlias = Annotated[int, Field(ge=-1, le=MAX_INT64)] | None
_ExtraArg: TypeAlias = str | int | float | Annotated[list[str | int | float], Field(fail_fast=True)]
ExtraArgs: TypeAlias = dict[str, _ExtraArg] | None
MmPayload: TypeAlias = Literal["tensors", "none"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def check_messages(messages: object) -> object:
    """Check that each message has a role. The rest is checked where messages are rendered."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError(f"message {index} must be an object with a role")
    return messages


Messages: TypeAlias = Annotated[list[Any], BeforeValidator(check_messages)]
_ThinkingBudget: TypeAlias = Annotated[
    int | None, AfterValidator(lambda budget: None if budget == -1 else budget)
]
TopLogprobs: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda value: 0 if value is None else value, json_schema_input_type=int | None),
]


class Open(BaseModel):
    """A type that keeps unknown fields."""

    model_config = ConfigDict(extra="allow")


class ChatCompletionNamedFunction(Open):
    """The name of a tool."""

    name: str


class ChatCompletionNamedToolChoiceParam(Open):
    """The tool that must be called."""

    function: ChatCompletionNamedFunction
    type: Literal["function"] = "function"


class StreamOptions(Open):
    """The options for usage in a streamed answer."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


@dataclass
class StructuredOutputsParams:
    """Exactly one constraint on the form of the answer, with its options."""

    json: str | dict[Any, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None


@dataclass
class RepetitionDetectionParams:
    """The repeated patterns that end an answer."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class GenerationRequest(BaseModel, defer_build=True):
    """The fields that chats and completions share."""

    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    stop: Stop = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    thinking_token_budget: _ThinkingBudget = None
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: Integers | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: _Truncation = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: Integers | None = None
    allowed_token_ids: Integers | None = None
    bad_words: _Texts = Field(default_factory=list)
    structured_outputs: StructuredOutputsParams | None = None
    priority: int = 0
    request_id: str = ""
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool | None = False
    routed_experts_prompt_start: int = 0
    return_token_offsets: bool | None = False
    mm_payload: MmPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=128)
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: Annotated[ExtraArgs, AfterValidator(lambda given: given or None)] = None
    repetition_detection: RepetitionDetectionParams | None = None
    stream_interval: int | None = None
    output_mode: OutputMode = "tokens"

    @property
    @abstractmethod
    def prompt_scores(self) -> int | None:
        """The number of log probabilities for each token of the prompt; None for none."""

    @property
    def reads_cache(self) -> bool:
        """Whether the engine looks the prompt up in its prefix cache.

        Source: vLLM ``sampling_params.py`` (`__post_init__`). A beam search asks for no log
        probabilities of the prompt, whatever the request does.
        """
        return self.prompt_scores is None or self.use_beam_search
