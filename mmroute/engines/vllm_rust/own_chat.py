"""The base of chats that vLLM's Rust frontend renders by code of its own, without a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.engines.vllm_rust.messages import parsed, read_messages
from mmroute.engines.vllm_rust.options import check_options
from mmroute.engines.vllm_rust.parsers import Parsers
from mmroute.requests.request import Request


@dataclass(frozen=True, slots=True)
class OwnChat(Chat):
    """Reads chats of one model."""

    default_kwargs: Mapping[str, Any]  # variables where a request does not set them
    parsers: Parsers  # the parsers that belong to the model's name

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        messages = read_messages(request.messages)
        self.parsers.check(with_tools=check_options(request, messages))
        return parsed(messages)
