"""Renders chats as SGLang does: to text, to token IDs, and often to text and back once more.

Source: SGLang ``srt/entrypoints/openai/serving_chat.py`` (`_apply_jinja_template`,
`_can_reuse_text_only_prompt_ids`), ``srt/managers/tokenizer_manager.py`` (`_tokenize_texts`),
``srt/multimodal/processors/base_processor.py`` (`process_mm_data`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat, check_api_fields
from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import (
    check_one_template,
    default_template,
    tokenizer_templates,
)
from mmroute.chat.template_parameters import TRANSFORMERS
from mmroute.engine import ChatSource
from mmroute.engines.sglang.messages import parse_messages, template_tools
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.errors import InexactError, ModelError, Reason, invalid, malformed
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_MEDIA_WORDS: Final = ("image", "audio", "video", "vision")
# Which a request must not set a second time.
_REFUSED_KWARGS: Final = (TRANSFORMERS - {"documents", "sanitize_control_tokens"}) | {"messages"}
# With the tool choice "none" the engine renders no tools.
_READ: Final = frozenset({"reasoning_effort", "thinking", "tool_choice"})


def load_chat(source: ChatSource[Any]) -> SglangChat:
    """The chat renderer of one model."""
    files, tokenizer, family = source.files, source.tokenizer, source.family
    check_one_template(files)
    found = default_template(files) or tokenizer_templates(files).get("tool_use")
    settings: SglangSettings = source.settings
    if settings.chat_template is not None:
        found = _own_template(settings.chat_template)
    template = None if found is None else ChatTemplate.compile(*found)
    if template is not None and not any(word in template.source for word in _MEDIA_WORDS):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name}: the chat template {template.origin} of family {family.family} says "
            "nothing of images; chats with such a template are not covered for SGLang.",
        )
    return SglangChat(template, tokenizer, tokenizer.template_tokens, settings.chat_template_kwargs)


def _own_template(path: str) -> tuple[str, str]:
    try:
        return Path(path).read_text(encoding="utf-8"), path
    except OSError as error:
        message = f"--chat-template {path}: {error.strerror}"
        raise ModelError(Reason.MISSING_FILE, message) from error
    except UnicodeDecodeError as error:
        raise malformed(f"--chat-template {path} is not UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class SglangChat(Chat):
    """Renders chats with the model's template, as SGLang does."""

    template: ChatTemplate | None  # the template for all requests; None if the model has none
    tokenizer: Tokenizer
    # The texts of `bos_token` and the like, which templates may write.
    special_tokens: Mapping[str, str]
    default_kwargs: Mapping[str, Any]  # the variables that requests do not set

    @property
    def content_format(self) -> str:
        return "openai"

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": self.template.origin if self.template else "none",
            "content_format": "words of the chat template",
        }

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        return {"default": self.template} if self.template else {}

    def with_template(self, source: str, origin: str) -> SglangChat:
        return replace(self, template=ChatTemplate.compile(source, origin))

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        return parse_messages(request)

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        check_api_fields(_READ, request)
        messages = list(chat.messages)
        continued = ""
        last = messages[-1]
        if last["role"] == "assistant" and isinstance(last["content"], str):
            if request.continue_final_message:
                continued = messages.pop()["content"]
            else:
                messages[-1] = {"role": "user", "content": last["content"]}
        ids = self._encode(self._rendered(messages, request))
        if continued:
            ids = np.concatenate([ids, self._encode_continued(continued)])
        adds_by_itself = len(self.tokenizer.encode("", add_special_tokens=True)) > 0
        if not items and not adds_by_itself:
            return ids
        text = self.tokenizer.decode(ids.tolist())
        bos = self.special_tokens.get("bos_token")
        written = bool(items and bos and text.startswith(bos))
        return self._encode(text, add_special_tokens=not written)

    def _rendered(self, messages: list[dict[str, Any]], request: Request) -> str:
        if self.template is None:
            raise InexactError(
                Reason.CHAT_TEMPLATE_MISSING,
                "the model has no chat template; send a rendered `prompt` instead",
            )
        kwargs = {**self.default_kwargs, **request.chat_template_kwargs}
        if refused := _REFUSED_KWARGS & kwargs.keys():
            raise invalid(f"chat_template_kwargs must not set {', '.join(sorted(refused))}")
        tools = template_tools(request.tools)
        try:
            return self._attempt(self.template, messages, kwargs, tools)
        except InexactError as error:
            if tools is None or error.reason is not Reason.CHAT_TEMPLATE_FAILED:
                raise
            functions = [tool["function"] for tool in tools]
            return self._attempt(self.template, messages, kwargs, functions)

    def _attempt(
        self,
        template: ChatTemplate,
        messages: list[dict[str, Any]],
        kwargs: Mapping[str, Any],
        tools: list[dict[str, Any]] | None,
    ) -> str:
        return template.render(
            messages,
            variables={"documents": None, **self.special_tokens, **kwargs, "tools": tools},
            add_generation_prompt=True,  # the API has no field for it
            continue_final_message=False,
        )

    def _encode_continued(self, text: str) -> TokenIds:
        ids = self._encode(text, add_special_tokens=True)
        begins = len(ids) and ids[0] == self.tokenizer.bos_token_id
        return ids[1:] if begins else ids

    def _encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        try:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except ValueError as error:
            raise invalid(f"the prompt cannot be encoded: {error}") from error
