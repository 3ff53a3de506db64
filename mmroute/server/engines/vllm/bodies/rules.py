"""The rules of vLLM's API for the chats of a model.

Source: vLLM ``renderers/online_renderer.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mmroute.engines.vllm.bodies.chats import ChatFields
from mmroute.engines.vllm.bodies.errors import refused, unsupported_field
from mmroute.engines.vllm.bodies.fields import ChatCompletionNamedToolChoiceParam
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.server.api_errors import ApiError

# Parsers whose grammar has each property of a tool's schema.
_WITH_FLAT_GRAMMAR: Final = ("glm45", "glm47", "ling3")


@dataclass(frozen=True, slots=True)
class ChatRules:
    """What of a model and its engine decides how a client's chat is read."""

    # Whether Harmony renders the chats, which reads only some of their fields.
    harmony: bool = False
    rust: bool = False  # whether vLLM's Rust frontend reads them
    templated: bool = True  # whether a template renders them, and not the tokenizer
    excludes_tools: bool = False  # the engine's option of that name
    tool_parser: str | None = None  # the parser of tool calls in answers; None if it is not known
    trusts_template: bool = False  # whether clients may bring a chat template

    def check_served(self, api: str) -> None:
        """Refuse an API that vLLM's Rust frontend does not have.

        Source: vLLM ``rust/src/server/src/routes.rs`` (`not_supported`).
        """
        if self.rust:
            raise ApiError(
                HTTPStatus.NOT_IMPLEMENTED,
                "NotImplementedError",
                f"{api} is not supported by vLLM's Rust frontend; send a chat to "
                "/v1/chat/completions, or start the engine with VLLM_USE_RUST_FRONTEND=0",
            )

    def check_template(self, chat: ChatFields) -> None:
        """Refuse a request that brings a chat template, also if the engine trusts it."""
        in_kwargs = (chat.chat_template_kwargs or {}).get("chat_template")
        if chat.chat_template is None and in_kwargs is None:
            return
        if self.trusts_template:
            raise unsupported_field("chat_template: templates of requests are not covered")
        raise refused(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )

    def check_tools(self, tools: Sequence[ChatCompletionToolsParam] | None, choice: object) -> None:
        """Refuse tools of which the engine's parser can make no grammar, so that it fails.

        Source: vLLM ``tool_parsers/structural_tag_registry.py`` (`get_structural_tag_tools`,
        `_glm_4_7_tool_tag`).
        """
        if self.harmony or self.tool_parser is None or choice == "none":
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

    def takes_ids_beside(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether vLLM is known to take forwarded token IDs in place of these messages."""
        in_parts = any(isinstance(message.get("content"), list) for message in messages)
        return self.harmony or not in_parts


def _name_of(choice: object) -> str | None:
    """The name of the tool that must be called, if a choice has one."""
    match choice:
        case ChatCompletionNamedToolChoiceParam(function=function):
            return function.name
        case {"type": "function" | "custom", "name": str(name)}:
            return name
    return None
