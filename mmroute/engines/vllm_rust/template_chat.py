"""Chats of models with a chat template, as vLLM's Rust frontend renders them.

Source: vLLM ``rust/src/chat/src/renderer/hf/mod.rs``, ``rust/src/chat/src/request.rs``
(`ResolvedToolContext`), ``rust/src/server/src/routes/openai/chat_completions/convert.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.engines.vllm_rust.json_values import read_json
from mmroute.engines.vllm_rust.messages import images_of, read_messages
from mmroute.engines.vllm_rust.options import (
    check_options,
    hides_tools,
    template_kwargs,
    tools_of_request,
)
from mmroute.engines.vllm_rust.parsers import Parsers
from mmroute.engines.vllm_rust.template import RustTemplate
from mmroute.engines.vllm_rust.template_files import as_read
from mmroute.errors import InexactError, Reason
from mmroute.requests.items import Items
from mmroute.requests.request import Request


@dataclass(frozen=True, slots=True)
class RustChat(Chat):
    """Renders chats with the model's template."""

    # The model's template; None if it has none, or one that is not covered.
    template: RustTemplate | None
    why_none: str  # the message of the refusal if `template` is None
    special_tokens: Mapping[str, str]  # `bos_token` and the like, which templates may write
    # Variables for the template where a request does not set them.
    default_kwargs: Mapping[str, Any]
    parsers: Parsers  # the parsers that belong to the model's name. Chats are refused without them.
    image_text: str  # the text that stands for an image in a template that takes strings
    earlier: bool = False  # whether the frontend is that of 0.32.0

    @property
    def content_format(self) -> str:
        return "string" if self.template is None else self.template.content_format

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": self.template.origin if self.template else f"refused: {self.why_none}",
            "content_format": "the chat template's loops",
        }

    def with_template(self, source: str, origin: str) -> RustChat:
        if Path(origin).is_file():
            source = as_read(source)
        return replace(
            self, template=RustTemplate.compile(source, origin, has_dates=not self.earlier)
        )

    def with_content_format(self, content_format: str) -> RustChat:
        if self.template is None:
            return self
        return replace(self, template=replace(self.template, content_format=content_format))

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        empty = "" if self.earlier else "{}"
        messages = read_messages(request.messages, empty_arguments=empty)
        self.parsers.check(with_tools=check_options(request, messages))
        if self.template is None:
            raise InexactError(Reason.CHAT_TEMPLATE_MISSING, self.why_none)
        shown = [message.for_template(self.content_format, self.image_text) for message in messages]
        return ParsedChat(shown, [()] * len(shown), images_of(messages))

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        if self.template is None:
            raise InexactError(Reason.CHAT_TEMPLATE_MISSING, self.why_none)
        variables: dict[str, Any] = {
            "add_generation_prompt": request.add_generation_prompt,
            "continue_final_message": request.continue_final_message,
            **self.special_tokens,
        }
        of_messages = [tool for message in chat.messages for tool in message.get("tools", ())]
        tools = [*tools_of_request(request), *of_messages]
        if tools and not hides_tools(request, earlier=self.earlier):
            variables["tools"] = tools
        if request.documents is not None:
            variables["documents"] = read_json(request.documents, "documents", 1)
        return self.template.render(
            list(chat.messages),
            variables | template_kwargs(request, self.default_kwargs),
            continue_final_message=request.continue_final_message,
        )
