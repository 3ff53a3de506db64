"""The fields that requests of several routes have, with vLLM's names, defaults and laxness.

The classes of requests have vLLM's order of fields, in which errors are reported. Fields that
nothing here reads are declared because vLLM refuses values of a wrong type. Three things differ
from vLLM: messages and parts of messages are checked by `mmroute.engines.vllm`, long lists stop at
their first wrong item, and `output_mode` is a field of vLLM's generate route only.

Source: vLLM ``sampling_params.py``, ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.dataclasses import dataclass
from pydantic_core import InitErrorDetails

from mmroute.engines.vllm.bodies.errors import refused

CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_FEWEST_REPETITIONS: Final = 2
_FIRST_MESSAGE: Final = "ChatCompletionDeveloperMessageParam"  # whose errors vLLM reports
OutputMode: TypeAlias = Literal["tokens", "text", "derender"]
MAX_INT64: Final = 2**63 - 1
Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), le=MAX_INT64)]
Integers: TypeAlias = Annotated[list[int], Field(fail_fast=True)]
_Texts: TypeAlias = Annotated[list[str], Field(fail_fast=True)]
TokenIdList: TypeAlias = Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)]
Stop: TypeAlias = str | Annotated[list[str], Field(max_length=4)] | None
_Truncation: TypeAlias = Annotated[int, Field(ge=-1, le=MAX_INT64)] | None
_ExtraArg: TypeAlias = str | int | float | Annotated[list[str | int | float], Field(fail_fast=True)]
ExtraArgs: TypeAlias = dict[str, _ExtraArg] | None
MmPayload: TypeAlias = Literal["tensors", "none"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def check_messages(messages: object) -> object:
    """Check that each message has a role. The rest is checked where messages are rendered."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and isinstance(message.get("role"), str):
            continue
        wrong = InitErrorDetails(type="dict_type", loc=(index, _FIRST_MESSAGE), input=message)
        if isinstance(message, dict):
            name = "role" if "content" in message else "content"
            wrong["type"] = "string_type" if name in message else "missing"
            wrong["loc"] = (index, _FIRST_MESSAGE, name)
        raise ValidationError.from_exception_data("messages", [wrong])
    return messages


def _thinking_budget(value: object) -> object:
    if value is None or (type(value) is int and value >= -1):
        return None if value == -1 else value
    name = "thinking_token_budget"
    raise refused(f"`{name}` must be a non-negative integer or -1 for unlimited.", name, value)


Messages: TypeAlias = Annotated[list[Any], BeforeValidator(check_messages)]
_ThinkingBudget: TypeAlias = Annotated[int | None, BeforeValidator(_thinking_budget)]
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


class JsonSchemaResponseFormat(BaseModel):
    """A JSON schema and its name."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """The form of the answer: text, any JSON object, or an object by a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaResponseFormat | None = None


class StructuralTagResponseFormat(Open):
    """A structural tag."""

    type: Literal["structural_tag"]
    format: Any


class LegacyStructuralTag(Open):
    """A part of a structural tag in its older form."""

    begin: str
    structural_tag_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    end: str


class LegacyStructuralTagResponseFormat(Open):
    """A structural tag in its older form."""

    type: Literal["structural_tag"]
    structures: list[LegacyStructuralTag]
    triggers: list[str]


AnyResponseFormat: TypeAlias = (
    ResponseFormat | StructuralTagResponseFormat | LegacyStructuralTagResponseFormat
)


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

    def __post_init__(self) -> None:
        """Refuse none, and more than one."""
        found = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(found) != 1:
            raise refused(
                "You must use one kind of structured outputs constraint, found "
                f"{', '.join(found) or 'none'}"
            )


@dataclass
class RepetitionDetectionParams:
    """The repeated patterns that end an answer."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that do not go together."""
        if not 0 <= self.min_pattern_size <= self.max_pattern_size:
            raise refused(
                "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= "
                "max_pattern_size. Set both to 0 to disable repetitive pattern detection."
            )
        if self.max_pattern_size and self.min_count < _FEWEST_REPETITIONS:
            raise refused("min_count must be >= 2 to detect repetitive patterns")


class RequestedOutput(NamedTuple):
    """The output that a request asks for, in fields that chats and completions do not share.

    Attributes:
        answers: the number of answers.
        max_tokens: the most tokens an answer may have; None for as many as fit.
        logprobs: the number of log probabilities for each token of the answer; None for none.
        only_echo: whether the answer is to have the prompt and no tokens of its own.
    """

    answers: int
    max_tokens: int | None
    logprobs: int | None
    only_echo: bool = False


class GenerationRequest(BaseModel, defer_build=True):
    """The fields that chats and completions share."""

    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    response_format: AnyResponseFormat | None = None
    seed: Int64 | None = None
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
    priority: Int64 = 0
    request_id: str = ""
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool = False
    routed_experts_prompt_start: int = Field(default=0, ge=0)
    return_token_offsets: bool | None = False
    mm_payload: MmPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=128)
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: Annotated[ExtraArgs, AfterValidator(lambda given: given or None)] = None
    repetition_detection: RepetitionDetectionParams | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None
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

    @abstractmethod
    def requested_output(self) -> RequestedOutput:
        """The output that it asks for, in fields that chats and completions do not share."""
