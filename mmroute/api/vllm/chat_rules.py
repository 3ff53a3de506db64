"""How vLLM's API treats chats: those that templates or tokenizers render, and those of Harmony.

Source: vLLM ``renderers/online_renderer.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from mmroute.api.vllm.answers import GenerateRequest
from mmroute.api.vllm.call import ApiOptions, Call, Reply
from mmroute.api.vllm.chat_completion import (
    ChatCompletionRequest,
    chat_answer,
    parse_context,
    template_kwargs,
)
from mmroute.api.vllm.chats import ChatFields
from mmroute.api.vllm.errors import bad_request, of_reason, require
from mmroute.api.vllm.harmony_output import tagged
from mmroute.api.vllm.rendering import rendered, route_ids
from mmroute.api.vllm.responses_chat import chat_of_responses, options_of_responses
from mmroute.api.vllm.responses_protocol import ResponsesRequest
from mmroute.api.vllm.sampling import check_output_budget
from mmroute.api.vllm.truncation import truncated_ids
from mmroute.engines.vllm.chats import RefusedChat
from mmroute.errors import Reason, quoted

if TYPE_CHECKING:
    from mmroute.engines.vllm.harmony_chat import HarmonyChat


class ChatRules(Protocol):
    """How the API treats the chats of a model."""

    @property
    def shortens(self) -> bool:
        """Whether `truncate_prompt_tokens` shortens prompts."""

    def check_trust(self, chat: ChatFields, options: ApiOptions) -> None:
        """Refuse fields of clients that are not trusted.

        Raises:
            ApiError: 400.
        """

    def check_chat(self, chat: ChatCompletionRequest, call: Call) -> None:
        """Refuse what vLLM refuses in chats, and not in requests of the Responses API.

        Raises:
            ApiError: 400.
        """

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether vLLM is known to take forwarded token IDs in place of these messages."""

    def complete(self, answer: GenerateRequest, chat: ChatCompletionRequest) -> None:
        """Put into an answer what parsers need to know of the chat.

        Raises:
            ApiError: structured outputs that are not covered.
        """

    def responses(self, request: ResponsesRequest, call: Call, request_id: str) -> Reply:
        """The answer to a request of the Responses API.

        Raises:
            ApiError: what vLLM refuses, and what has no exact answer.
        """


class TemplateRules:
    """The rules of chats that a template renders, or the tokenizer itself."""

    shortens: Final = True

    def check_trust(self, chat: ChatFields, options: ApiOptions) -> None:
        _check_template(chat)
        if options.trusts_mm_kwargs:
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

    def check_chat(self, chat: ChatCompletionRequest, call: Call) -> None:
        check_output_budget(*chat.token_limit(), call.model.max_model_len)
        if call.options.strict and chat.tool_choice not in (None, "none"):
            raise bad_request(
                f"tool_choice={quoted(chat.tool_choice)} requires --enable-auto-tool-choice and "
                "--tool-call-parser to be set (--strict)"
            )
        templated = chat.chat_template is not None or chat.chat_template_kwargs is not None
        if templated and call.model.model.chat.templates is None:
            message = "chat_template is not supported for Mistral tokenizers."
            raise bad_request(message, "chat_template")

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        return not any(isinstance(message.get("content"), list) for message in messages)

    def complete(self, answer: GenerateRequest, chat: ChatCompletionRequest) -> None:
        answer["parse_context"] = parse_context(chat, template_kwargs(chat))

    def responses(self, request: ResponsesRequest, call: Call, request_id: str) -> Reply:
        chat, model = chat_of_responses(request), call.model
        in_parts = any(isinstance(m.get("content"), list) and m["content"] for m in chat.messages)
        require(
            not in_parts or model.model.chat.templates is not None,
            "mistral-common takes no `input_text` and no `input_image`; send texts, or a chat.",
        )
        check_output_budget(request.max_output_tokens, "max_output_tokens", model.max_model_len)
        return chat_answer(
            chat, call, lambda routing, call: rendered(chat, routing, call, request_id)
        )


class HarmonyRules:
    """The rules of chats that Harmony renders, without looking at all their fields."""

    shortens: Final = False

    def check_trust(self, chat: ChatFields, options: ApiOptions) -> None:
        """Trust every field: none of those in question is read."""

    def check_chat(self, chat: ChatCompletionRequest, call: Call) -> None:
        """Take every chat; the engine always has parsers for these models."""

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        return True

    def complete(self, answer: GenerateRequest, chat: ChatCompletionRequest) -> None:
        answer["reasoning_ended"] = True
        answer["parse_context"] = parse_context(chat, {})
        _describe(answer, chat)

    def responses(self, request: ResponsesRequest, call: Call, request_id: str) -> Reply:
        options, model = options_of_responses(request), call.model
        _check_template(options)
        chat = model.model.chat
        if isinstance(chat, RefusedChat):
            raise of_reason(Reason.CHAT_RENDERER_UNSUPPORTED, chat.why)
        # Harmony is an extra, and slow to import.
        from mmroute.api.vllm.responses_harmony import conversation_ids

        chat = cast("HarmonyChat", chat)
        ids = conversation_ids(request, chat, tool_server=model.tool_server).tolist()
        check_output_budget(request.max_output_tokens, "max_output_tokens", model.max_model_len)
        ids = truncated_ids(options, ids, model.max_model_len)
        routing = route_ids(model, options, ids)
        answer = rendered(options, routing, call, request_id)
        _describe(answer, options)
        return Reply(answer, [routing])


def _describe(answer: GenerateRequest, chat: ChatCompletionRequest) -> None:
    """What the parser of Harmony's answers needs: structural tags, and variables of a template."""
    answer["reasoning_parser_kwargs"] = {"chat_template_kwargs": template_kwargs(chat)}
    sampling = answer["sampling_params"]
    if sampling is not None and "structured_outputs" in sampling:
        sampling["structured_outputs"] = tagged(sampling["structured_outputs"])


def _check_template(chat: ChatFields) -> None:
    """Refuse a request that brings a chat template.

    Raises:
        ApiError: 400.
    """
    in_kwargs = (chat.chat_template_kwargs or {}).get("chat_template")
    if chat.chat_template is not None or in_kwargs is not None:
        raise bad_request(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )
