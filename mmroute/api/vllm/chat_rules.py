"""The rules of vLLM's API for chats: one for chats that Harmony renders, one for all others.

Source: vLLM ``renderers/online_renderer.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from mmroute.api.vllm.answers import GenerateRequest
from mmroute.api.vllm.errors import bad_request, unsupported_field
from mmroute.api.vllm.fields import (
    ChatCompletionNamedToolChoiceParam,
    GenerationRequest,
)
from mmroute.api.vllm.harmony_output import tagged
from mmroute.api.vllm.options import ApiOptions
from mmroute.api.vllm.responses_protocol import ToolChoiceNamed
from mmroute.api.vllm.sampling import check_output_budget, structured_outputs
from mmroute.engines.settings import EngineSettings
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.errors import quoted
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Request

# Parsers whose grammar has each property of a tool's schema.
_WITH_FLAT_GRAMMAR: Final = ("glm45", "glm47", "ling3")


class ChatFields(Protocol):
    """The fields that all requests with a chat have."""

    model: str | None
    messages: list[Any]
    tools: list[ChatCompletionToolsParam] | None
    add_generation_prompt: bool
    continue_final_message: bool
    add_special_tokens: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None

    @property
    def model_fields_set(self) -> set[str]:
        """The names of the fields that the client sent."""

    def to_request(self, loras: Mapping[str, str]) -> Request:
        """The request for a normalizer."""


class CompletedChat(ChatFields, Protocol):
    """The fields of a chat that the model is to continue."""

    @property
    def tool_choice(self) -> object:
        """The tools that may be called."""

    def token_limit(self) -> tuple[int | None, str]:
        """The most tokens of the answer, None for no limit; and the field that sets it."""


@dataclass(frozen=True, slots=True)
class TemplateRules:
    """The rules for chats that a template or the tokenizer renders.

    Attributes:
        tool_parser: the parser of tool calls in answers; None if it is not known.
        shortens: whether `truncate_prompt_tokens` shortens prompts.
        has_conversations: whether a request of the Responses API becomes a conversation of Harmony,
            and no chat.
    """

    tool_parser: str | None = None
    shortens: ClassVar[bool] = True
    has_conversations: ClassVar[bool] = False

    def check_trust(self, chat: ChatFields, options: ApiOptions, settings: EngineSettings) -> None:
        """Refuse fields that a client may not set.

        Raises:
            ApiError: 400; 422 `unsupported_field`.
        """
        check_template(chat, settings)
        if options.trusts_mm_kwargs or settings.trust_request_mm_kwargs:
            return
        for name, given, changed in (
            ("mm_processor_kwargs", chat.mm_processor_kwargs, "preprocessing"),
            ("media_io_kwargs", chat.media_io_kwargs, "media loading"),
        ):
            if given:
                raise bad_request(
                    f"Per-request {name} are disabled by default because they can change "
                    f"multimodal {changed} resource usage. Start the server with "
                    "--trust-request-mm-kwargs only when clients are trusted.",
                    name,
                )

    def check_tools(self, tools: Sequence[ChatCompletionToolsParam] | None, choice: object) -> None:
        """Refuse tools of which the engine's parser can make no grammar.

        Source: vLLM ``tool_parsers/structural_tag_registry.py`` (`get_structural_tag_tools`,
        `_glm_4_7_tool_tag`).

        Raises:
            ApiError: 422 `unsupported_field`.
        """
        if self.tool_parser is None or choice == "none":
            return
        name = _name_of(choice)
        if sum(tool["function"]["name"] == name for tool in tools or ()) > 1:
            raise unsupported_field(
                "tools: two have the name that tool_choice has, with which most parsers fail"
            )
        if tools == [] and (choice == "required" or name is not None):
            raise unsupported_field(
                "tools: tool_choice asks for a call, and the API itself runs all of the tools; "
                "most parsers fail with that"
            )
        if self.tool_parser not in _WITH_FLAT_GRAMMAR:
            return
        for function in (tool["function"] for tool in tools or ()):
            if function.get("strict"):
                continue
            properties = (function.get("parameters") or {}).get("properties")
            if isinstance(properties, dict) and not all(
                isinstance(each, dict) for each in properties.values()
            ):
                raise unsupported_field(
                    f"tools: the engine's parser {self.tool_parser} fails with a property that is "
                    "no object, unless the tool is strict; give {} in place of true"
                )

    def check_chat(self, chat: CompletedChat, options: ApiOptions, model: ResolvedModel) -> None:
        """Refuse a chat that vLLM refuses; requests of the Responses API are not checked so.

        Raises:
            ApiError: 400; 422 `unsupported_field`.
        """
        self.check_tools(chat.tools or None, chat.tool_choice)
        check_output_budget(*chat.token_limit(), model.max_model_len)
        unparsed = options.strict and not _has_tool_parser(model)
        if unparsed and chat.tool_choice not in (None, "none"):
            raise bad_request(
                f"tool_choice={quoted(chat.tool_choice)} requires --enable-auto-tool-choice and "
                "--tool-call-parser to be set (--strict)"
            )
        templated = chat.chat_template is not None or chat.chat_template_kwargs is not None
        if templated and model.chat.templates is None:
            message = "chat_template is not supported for Mistral tokenizers."
            raise bad_request(message, "chat_template")

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether vLLM is known to take forwarded token IDs in place of these messages."""
        return not any(isinstance(message.get("content"), list) for message in messages)

    def check_structured(self, request: GenerationRequest) -> None:
        """Refuse what `complete` refuses: nothing here, where they stay as they are."""

    def complete(
        self, answer: GenerateRequest, context: dict[str, Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Put the values of a chat that parsers read into an answer.

        Args:
            answer: the answer, which is changed.
            context: the `parse_context` of the chat, without the variables of its template.
            kwargs: the variables of its template.
        """
        answer["parse_context"] = context | {"chat_template_kwargs": kwargs}


class HarmonyRules:
    """The rules for chats that Harmony renders, which reads only some of their fields.

    The attributes and methods are those of `TemplateRules`.
    """

    shortens: ClassVar[bool] = False
    has_conversations: ClassVar[bool] = True

    def check_tools(self, tools: Sequence[ChatCompletionToolsParam] | None, choice: object) -> None:
        """Accept the tools: Harmony's grammar is for its own calls."""

    def check_trust(self, chat: ChatFields, options: ApiOptions, settings: EngineSettings) -> None:
        """Accept the fields: Harmony reads none of them."""

    def check_chat(self, chat: CompletedChat, options: ApiOptions, model: ResolvedModel) -> None:
        """Accept every chat: the engine always has parsers for these models."""

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        return True

    def check_structured(self, request: GenerationRequest) -> None:
        """Refuse the structured outputs that `complete` refuses.

        Raises:
            ApiError: 400; 422 `unsupported_field`.
        """
        structured = structured_outputs(request)
        if structured is not None:
            tagged(structured)

    def complete(
        self, answer: GenerateRequest, context: dict[str, Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Put the values that Harmony's parser reads into an answer.

        Raises:
            ApiError: structured outputs that are not covered.
        """
        answer["reasoning_ended"] = True
        answer["parse_context"] = context
        describe_to_parser(answer, kwargs)


ChatRules: TypeAlias = TemplateRules | HarmonyRules
"""The rules of the API for the chats of a model."""


def describe_to_parser(answer: GenerateRequest, kwargs: Mapping[str, Any]) -> None:
    """Put the variables and structural tags that Harmony's parser reads into an answer.

    Args:
        answer: the answer, which is changed.
        kwargs: the variables of the chat's template.

    Raises:
        ApiError: structured outputs that are not covered.
    """
    answer["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
    sampling = answer["sampling_params"]
    if sampling is not None and "structured_outputs" in sampling:
        sampling["structured_outputs"] = tagged(sampling["structured_outputs"])


def _name_of(choice: object) -> str | None:
    """The name of the tool that must be called, if a choice has one."""
    match choice:
        case ChatCompletionNamedToolChoiceParam(function=function):
            return function.name
        case ToolChoiceNamed(name=name):
            return name
    return None


def _has_tool_parser(model: ResolvedModel) -> bool:
    """Whether the engine parses tool calls, as it always does of models in Mistral's format."""
    settings = model.settings
    enabled = not settings.complete or "--enable-auto-tool-choice" in settings.without_effect
    return model.chat.templates is None or (settings.tool_parser is not None and enabled)


def check_template(chat: ChatFields, settings: EngineSettings) -> None:
    """Refuse a request that brings a chat template.

    Raises:
        ApiError: 400; 422 `unsupported_field`: the engine trusts it, and mmroute runs none.
    """
    in_kwargs = (chat.chat_template_kwargs or {}).get("chat_template")
    if chat.chat_template is None and in_kwargs is None:
        return
    if settings.trust_request_chat_template:
        raise unsupported_field("chat_template: templates of requests are not covered")
    raise bad_request(
        "Chat template is passed with request, but --trust-request-chat-template is not set. "
        "Refused request with untrusted chat template."
    )
