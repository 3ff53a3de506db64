"""Chats: ``/v1/chat/completions/render``.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

from mmroute.answering.routing import Routing
from mmroute.api.vllm.answers import GenerateRequest
from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.chats import exact_chat, request_for, request_of
from mmroute.api.vllm.cost import Cost, cost_of_chat
from mmroute.api.vllm.errors import ApiError, bad_request, require, unsupported_field
from mmroute.api.vllm.fields import (
    ChatCompletionNamedToolChoiceParam,
    Effort,
    GenerationRequest,
    Messages,
    RequestedOutput,
    TopLogprobs,
)
from mmroute.api.vllm.rendering import rendered, request_id_of, route_ids
from mmroute.api.vllm.request_checks import before_fields, check_chat
from mmroute.api.vllm.text_prefix import rendered_chat, text_prefix
from mmroute.api.vllm.truncation import truncated_text
from mmroute.engines.vllm.defaults import own_template_kwargs
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import Reason
from mmroute.requests.request import NO_KWARGS, Request

_UNSET: Final = (None, "auto")
# Reasons of inexact chats whose tokens before the first item are known nevertheless.
_OF_ITEMS: Final = frozenset({
    Reason.IMAGE_SIZE_UNKNOWN, Reason.IMAGE_LINK_REFUSED, Reason.IMAGE_LINK_FAILED,
    Reason.IMAGE_UNREADABLE, Reason.IMAGE_IDENTITY_UNKNOWN, Reason.ITEM_TOO_LARGE,
    Reason.ITEM_IDENTITY_UNKNOWN, Reason.VIDEO_NOT_PREDICTABLE, Reason.AUDIO_NOT_PREDICTABLE,
})  # fmt: skip
_WITHOUT_TENSORS: Final = {
    given: {"x-mmroute-mm-payload": "metadata" if given else "none"} for given in (False, True)
}


class ChatCompletionRequest(GenerationRequest):
    """Body of ``/v1/chat/completions/render``."""

    messages: Messages
    logprobs: bool | None = False
    top_logprobs: TopLogprobs = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    tools: list[ChatCompletionToolsParam] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatCompletionNamedToolChoiceParam | None = (
        "none"
    )
    reasoning_effort: Effort | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None

    _check_first = before_fields(check_chat)

    def token_limit(self) -> tuple[int | None, str]:
        """The most tokens of the answer, None for no limit; and the field that sets it."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"

    def requested_output(self) -> RequestedOutput:
        return RequestedOutput(
            1 if self.n is None else self.n,
            self.token_limit()[0],
            logprobs=self.top_logprobs if self.logprobs else None,
        )

    @property
    def prompt_scores(self) -> int | None:
        if self.prompt_logprobs is None and self.echo:
            return self.top_logprobs or 0  # which the Rust frontend may be sent as null
        return self.prompt_logprobs

    def cost(self, size: int) -> Cost:
        return cost_of_chat(size, self.messages)

    def to_request(self, loras: Mapping[str, str]) -> Request:
        """The request for a normalizer. It has the fields that a server may not trust, too.

        Args:
            loras: the path of each LoRA adapter, by its name.
        """
        return request_of(
            self,
            loras,
            reasoning_effort=self.reasoning_effort,
            documents=self.documents,
            cache_salt=self.cache_salt,
            reads_cache=self.reads_cache,
            api_fields=self._api_fields(),
        )

    def routing(self, call: Call) -> Routing:
        """The routing of the prompt, which all fields of the body may change.

        Raises:
            ApiError: vLLM refuses the request, or it has no exact answer.
        """
        model = call.model
        forwarded = self._forwarded_ids(call)
        if forwarded is not None:
            self.return_token_offsets = False  # the engine has none of such IDs
            return route_ids(model, self, forwarded)
        limited = self.truncate_prompt_tokens is None or not model.chats.shortens
        routing = exact_chat(self, call, limited=limited)
        if not model.chats.shortens:
            return routing
        return truncated_text(self, routing, model, special_tokens=self.add_special_tokens)

    def answer(self, call: Call) -> Reply:
        if self.use_beam_search:
            raise bad_request("Beam search is not supported by the render endpoint")
        call.model.chats.check_chat(self, call.options, call.model.model)
        return chat_answer(self, call, self._answer)

    def _answer(self, routing: Routing, call: Call) -> GenerateRequest:
        answer = rendered(self, routing, call, request_id_of("chatcmpl", self, call))
        if call.tokens_only:
            call.model.chats.check_structured(self)
            return answer
        # Without a reasoning parser only the request itself can say so.
        answer["reasoning_ended"] = None if self.include_reasoning else True
        call.model.chats.complete(answer, self._parse_context(), template_kwargs(self))
        if self.return_token_offsets:
            answer["token_offsets"] = self._offsets(call)
        return answer

    def _offsets(self, call: Call) -> list[tuple[int, int]] | None:
        """The start and end of each token in the rendered text, in characters.

        Returns:
            None for a chat with items or without a template, and for tokenizers without offsets.
        """
        model = call.model.model
        if model.chat.templates is None:
            return None
        chat, text = rendered_chat(model, request_for(self, call))
        if chat.media or not isinstance(text, str):
            return None
        return model.tokenizer.offsets(text, add_special_tokens=self.add_special_tokens)

    def _parse_context(self) -> dict[str, Any]:
        """The `parse_context` of the answer, without the variables of the chat template."""
        called = [m.get("tool_calls") for m in self.messages if m["role"] == "assistant"]
        return {
            "tools": normalize_tools(self.tools) if self.tools else self.tools,
            "tool_choice": self._tool_choice(),
            "parallel_tool_calls": self.parallel_tool_calls,
            "include_reasoning": self.include_reasoning,
            "chat_template_kwargs": {},
            "history_tool_call_cnt": sum(
                [len(calls) for calls in called if isinstance(calls, list)]
            ),
        }

    def _tool_choice(self) -> Any:
        choice = self.tool_choice
        return choice.model_dump() if isinstance(choice, BaseModel) else choice

    def _api_fields(self) -> Mapping[str, Any]:
        if self.response_format is None and not self.tools:  # nor is there a choice of them
            return NO_KWARGS
        fields = {"response_format": self.response_format, "tool_choice": self._tool_choice()}
        return {name: value for name, value in fields.items() if value is not None}

    def _forwarded_ids(self, call: Call) -> list[int] | None:
        """The token IDs that a prefill engine rendered, which vLLM takes in place of messages."""
        ids = (self.kv_transfer_params or {}).pop("prompt_token_ids", None)
        if ids is None or self.echo:
            return None
        call.model.chats.check_trust(self, call.options, call.model.model.settings)
        name = "kv_transfer_params.prompt_token_ids"
        ids_given = isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids)
        require(
            ids_given,
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative "
            "integers.",
            name,
        )
        known = max(ids) <= call.model.model.max_token_id
        require(known, f"Token id {max(ids)} is out of vocabulary", name)
        if not call.model.chats.takes_ids_beside(self.messages):
            raise unsupported_field(
                f"{name} is not covered beside messages in parts: it depends on the parts whether "
                "the engine takes the IDs",
            )
        found: list[int] = ids
        return found


def chat_answer(
    chat: ChatCompletionRequest, call: Call, answer_of: Callable[[Routing, Call], GenerateRequest]
) -> Reply:
    """The answer to a chat. With `text_prefix` it may have only the tokens before the first item.

    Args:
        chat: the chat.
        call: the model to ask, and the options that the operator set.
        answer_of: returns the body of the answer for a routing.

    Raises:
        ApiError: vLLM refuses the request, or it has no exact answer.
    """
    try:
        routing = chat.routing(call)
        answer = answer_of(routing, call)
    except ApiError as error:
        cut = chat.truncate_prompt_tokens is not None
        if not call.options.text_prefix or error.reason not in _OF_ITEMS or cut:
            raise
        ids = text_prefix(call.model.model, request_for(chat, call))
        if ids is None:
            raise
        routing = route_ids(call.model, chat, ids)
        answer = answer_of(routing, call)
        if not call.tokens_only:
            answer["sampling_params"] = None  # or it could be posted on, and answered
        answer["inexact"] = {"reason": error.reason.value, "message": error.message}
        return Reply(answer, [routing], inexact=error.reason)
    features = answer["features"]
    if features is None or chat.mm_payload == "none":
        return Reply(answer, [routing])
    return Reply(answer, [routing], _WITHOUT_TENSORS[features["mm_metadata"] is not None])


def template_kwargs(chat: ChatCompletionRequest) -> dict[str, Any]:
    """The variables of the chat template, as vLLM hands them to parsers."""
    own = chat.chat_template_kwargs or {}
    every = own_template_kwargs(own, chat.reasoning_effort, chat.documents)
    others = {name: value for name, value in every.items() if value not in _UNSET}
    kwargs: dict[str, Any] = {"cohere_format": "cmd4"}  # a default of vLLM's own, for every model
    for name in own:
        if name in others:
            kwargs[name] = others.pop(name)
    kwargs["add_generation_prompt"] = chat.add_generation_prompt
    kwargs["continue_final_message"] = chat.continue_final_message
    return kwargs | others
