"""Renders chats of Kimi-K3, whose tool results and effort the engine reads before the template.

Source: vLLM ``renderers/kimi_k3.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.chat.renderer import ParsedChat, check_api_fields
from mmroute.chat.template import ChatTemplate
from mmroute.engines.vllm.hf_chat import (
    OWN_PARAMETERS,
    check_text_is_handed_on,
    objects_of,
    template_kwargs,
    tools_of,
)
from mmroute.engines.vllm.message_schema import uncovered
from mmroute.engines.vllm.messages import VllmChat, to_conversation
from mmroute.engines.vllm.templates import compile_template
from mmroute.errors import invalid, quoted
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request

_EFFORTS: Final = ("low", "high", "max")
# The engine hands them on to the tokenizer, where they change the token IDs or break it.
_REFUSED: Final = OWN_PARAMETERS - {
    "add_generation_prompt", "continue_final_message", "documents", "return_dict", "tools",
}  # fmt: skip
_HANDED_ON: Final = frozenset({"response_format", "tool_choice"})  # to the template


@dataclass(frozen=True, slots=True)
class KimiK3Chat(VllmChat):
    """Renders chats of Kimi-K3 as vLLM does. The template always gets texts."""

    template: ChatTemplate  # the tokenizer's template
    # The texts of `bos_token` and the like, which templates may write.
    special_tokens: Mapping[str, str]
    placeholders: Mapping[Modality, str]  # the text that is put in front for one item, by modality

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": self.template.origin,
            "content_format": "the engine's constant for this model",
        }

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        return {"default": self.template, "tool_use": self.template}

    def with_template(self, source: str, origin: str) -> KimiK3Chat:
        return replace(self, template=compile_template(source, origin))

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        check_api_fields(_HANDED_ON, request)
        if not chat.messages:
            raise uncovered("messages is empty, which is not covered for this model")
        check_text_is_handed_on(request)
        kwargs = template_kwargs(request)
        for name in sorted(_REFUSED & kwargs.keys()):
            raise invalid(f"chat_template_kwargs must not set {name} for this model")
        tools = tools_of(kwargs, request)
        documents = objects_of(kwargs, "documents")
        _read_thinking(kwargs)
        conversation = to_conversation(
            chat, content_format=self.content_format, placeholders=self.placeholders
        )
        return self.template.render(
            _with_ordered_results(conversation),
            variables={
                **self.special_tokens,
                **{name: kwargs[name] for name in kwargs.keys() - OWN_PARAMETERS},
                "tools": tools,
                "documents": documents,
            },
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
        )


def _read_thinking(kwargs: dict[str, Any]) -> None:
    """Make ``thinking`` and ``thinking_effort`` of the names that other models have for them."""
    if "enable_thinking" in kwargs:
        kwargs.setdefault("thinking", kwargs.pop("enable_thinking"))
    effort = kwargs.pop("reasoning_effort", None)
    if effort == "none":
        kwargs.setdefault("thinking", False)
    elif effort is not None:
        kwargs.setdefault("thinking_effort", effort)
    chosen = kwargs.get("thinking_effort")
    if chosen is not None and chosen not in _EFFORTS:
        raise invalid(
            f"thinking_effort must be one of {', '.join(_EFFORTS)} for this model, found "
            f"{quoted(chosen)}"
        )


def _with_ordered_results(conversation: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the results of tools in the order of their calls, and name tool and number in each."""
    ordered: list[dict[str, Any]] = []
    at = 0
    while at < len(conversation):
        message = conversation[at]
        ordered.append(message)
        at += 1
        calls = message.get("tool_calls")
        if message["role"] != "assistant" or not calls:
            continue
        start = at
        while at < len(conversation) and conversation[at]["role"] == "tool":
            at += 1
        results = conversation[start:at]
        places = _places(calls)
        names = [result.get("tool_call_id") for result in results]
        found = [None if name is None else places.get(str(name)) for name in names]
        pairs = [(result, call) for result, call in zip(results, found, strict=True) if call]
        if len(pairs) < len(results):
            ordered += results
            continue
        for result, (place, tool) in sorted(pairs, key=lambda pair: pair[1][0]):
            ordered.append({**result, "tool": tool, "index": place + 1})
    return ordered


def _places(calls: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
    """The place and the tool of each tool call, by every name that a result may give the call."""
    places: dict[str, tuple[int, str]] = {}
    for place, call in enumerate(calls):
        function = call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            continue
        names = [str(call["id"])] if call.get("id") else []
        for alias in (*names, f"{name}:{place}"):
            places.setdefault(alias, (place, name))
    return places
