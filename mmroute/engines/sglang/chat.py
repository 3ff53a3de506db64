"""Renders chats as SGLang does: to text, to token IDs, and often to text and back once more.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_chat.py`` (`_apply_jinja_template`),
``srt/parser/jinja_template_utils.py`` (`detect_jinja_template_content_format`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from jinja2 import nodes

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import (
    check_one_template,
    default_template,
    tokenizer_templates,
)
from mmroute.chat.template_parameters import TRANSFORMERS
from mmroute.engine import ChatSource
from mmroute.engines.judging import judged
from mmroute.engines.sglang.conversation import ConversationChat, guessed_template
from mmroute.engines.sglang.encoding import Kept, PromptEncoder
from mmroute.engines.sglang.message_schema import EFFORT, HANDED_ON
from mmroute.engines.sglang.messages import parse_messages, split_last, template_tools
from mmroute.engines.sglang.served import always_adds_bos, is_multimodal
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.engines.sglang.tokenizer import TEKKEN
from mmroute.engines.template_nodes import is_access
from mmroute.errors import InexactError, ModelError, Reason, invalid, malformed
from mmroute.model_directory import is_local
from mmroute.placement.rules import PLACEMENTS
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.tokenizers.formats.mistral import MistralChatEncoder

_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
_HUNYUAN: Final = "hunyuan"
_ITS_WORDS: Final = ("reasoning_effort", "reasoning_mode_token", "no_think")
_MEDIA_WORDS: Final = ("image", "audio", "video", "vision")
_MESSAGE_NAMES: Final = ("message", "msg", "m")
# Those that are read only where the function also makes token IDs.
_UNREAD_KWARGS: Final = frozenset({
    "max_length", "padding", "return_tensors", "tokenizer_kwargs", "truncation",
})  # fmt: skip
_OFF_KWARGS: Final = frozenset({"continue_final_message", "return_assistant_tokens_mask"})
# Which a request must not set a second time.
_REFUSED_KWARGS: Final = (
    TRANSFORMERS - _UNREAD_KWARGS - {"documents", "sanitize_control_tokens"}
) | {"messages", "conversations"}
# What templates call the switch that `reasoning_effort` sets.
_THINKING: Final = ("thinking", "enable_thinking")


def load_chat(source: ChatSource[SglangSettings], version: str, kept: Kept) -> Chat:
    """The chat renderer of one model, for a version of SGLang."""
    files, tokenizer, settings = source.files, source.tokenizer, source.settings
    multimodal = is_multimodal(source.family, files, settings)
    in_text = getattr(PLACEMENTS.find(source.family.placement), "in_text", False)
    adds_bos = always_adds_bos(files, version)
    encoder = PromptEncoder(tokenizer, multimodal, adds_bos, in_text, kept)
    if files.has(TEKKEN):
        from mmroute.engines.sglang.mistral_chat import MistralCommonChat  # mistral-common
        from mmroute.tokenizers.formats.mistral import MistralTokenizer

        chats = cast("MistralTokenizer", tokenizer).chat_encoder
        return MistralCommonChat(cast("MistralChatEncoder", chats), encoder)
    if settings.chat_template is None:
        path = settings.model or files.name
        model_type = files.object("config.json").get("model_type")
        of_hub = _HUB_NAME.fullmatch(path) is not None and not is_local(path)
        if guessed := guessed_template(path, model_type, local=not of_hub):
            if settings.reasoning_parser is not None:
                raise ModelError(
                    Reason.UNSUPPORTED_ENGINE_SETTING,
                    f"--reasoning-parser: what it adds to the chat template {guessed.name}, which "
                    "SGLang takes by the path or type of the model, is not covered",
                )
            return ConversationChat(guessed, encoder)
        check_one_template(files)
        found = default_template(files) or tokenizer_templates(files).get("tool_use")
    else:
        found = _own_template(settings.chat_template)
    if found and settings.reasoning_parser == _HUNYUAN and all(w in found[0] for w in _ITS_WORDS):
        raise ModelError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            "--reasoning-parser hunyuan: the effort that it sets for this template is not covered",
        )
    template = None if found is None else _compiled(*found)
    kwargs = settings.chat_template_kwargs
    return SglangChat(template, encoder, tokenizer.template_tokens, kwargs)


def _compiled(source: str, origin: str) -> ChatTemplate:
    of_media = any(word in source for word in _MEDIA_WORDS)
    return ChatTemplate.compile(source, origin, lambda tree: _format(tree, of_media=of_media))


def _format(template: nodes.Template, *, of_media: bool) -> str:
    loops = [loop.iter for loop in template.find_all(nodes.For)]
    over_contents = any(is_access(it, name, "content") for it in loops for name in _MESSAGE_NAMES)
    return "openai" if of_media or over_contents else "string"


def _own_template(path: str) -> tuple[str, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        message = f"--chat-template {path}: {error.strerror}"
        raise ModelError(Reason.MISSING_FILE, message) from error
    except UnicodeDecodeError as error:
        raise malformed(f"--chat-template {path} is not UTF-8: {error}") from error
    # Source: SGLang 0.5.23 ``srt/parser/template_manager.py`` (`_load_jinja_template`)
    return text.strip("\n").replace("\\n", "\n"), path


def _check_documents(documents: object) -> None:
    """Refuse what transformers refuses as the documents of a template."""
    if documents is None:
        return
    if not isinstance(documents, list | str | Mapping) or not all(
        isinstance(document, Mapping) for document in documents
    ):
        raise invalid("chat_template_kwargs: documents must be a list of objects")


@dataclass(frozen=True, slots=True)
class SglangChat(Chat):
    """Renders chats with the model's template, as SGLang does."""

    template: ChatTemplate | None  # the template for all requests; None if the model has none
    encoder: PromptEncoder
    # The texts of `bos_token` and the like, which templates may write.
    special_tokens: Mapping[str, str]
    default_kwargs: Mapping[str, Any]  # the variables that requests do not set

    @property
    def content_format(self) -> str:
        return self.template.content_format if self.template else "string"

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": self.template.origin if self.template else "none",
            "content_format": "words and loops of the chat template",
        }

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        return {"default": self.template} if self.template else {}

    def with_template(self, source: str, origin: str) -> SglangChat:
        return replace(self, template=_compiled(source, origin))

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        return parse_messages(request, joined=self.content_format == "string")

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        messages, continued = split_last(chat.messages, request)
        ids = self.encoder.encode(self._rendered(messages, request))
        if continued:
            ids = np.concatenate([ids, self.encoder.continued(continued)])
        how = request.api_fields.get(HANDED_ON)
        return self.encoder.handed_on(ids, with_items=bool(items), how=how)

    def _rendered(self, messages: list[dict[str, Any]], request: Request) -> str:
        if self.template is None:
            raise InexactError(
                Reason.CHAT_TEMPLATE_MISSING,
                "the model has no chat template; send a rendered `prompt` instead",
            )
        kwargs = {
            name: value
            for name, value in self._kwargs(request).items()
            if name not in _UNREAD_KWARGS and (value or name not in _OFF_KWARGS)
        }
        _check_documents(kwargs.get("documents"))
        if refused := _REFUSED_KWARGS & kwargs.keys():
            raise invalid(f"chat_template_kwargs must not set {', '.join(sorted(refused))}")
        tools, template = template_tools(request), self.template

        def attempt(tools: list[dict[str, Any]] | None) -> str:
            return template.render(
                messages,
                variables={"documents": None, **self.special_tokens, **kwargs, "tools": tools},
                add_generation_prompt=True,  # the API has no field for it
                continue_final_message=False,
            )

        try:
            return attempt(tools)
        except InexactError as error:
            if tools is None or error.reason is not Reason.CHAT_TEMPLATE_FAILED:
                raise
            return attempt([tool["function"] for tool in tools])

    def _kwargs(self, request: Request) -> Mapping[str, Any]:
        """The template's variables from the request and the server's defaults.

        Source: SGLang 0.5.23 ``protocol.py`` (`normalize_reasoning_inputs`), ``serving_chat.py``
        (`_convert_to_internal_request`, `_process_messages`).
        """
        kwargs = dict(request.chat_template_kwargs)
        sent = request.reasoning_effort
        effort: object = judged(EFFORT.validate_python, sent, "reasoning_effort")
        if effort is not None:
            kwargs = {**dict.fromkeys(_THINKING, effort != "none"), **kwargs}
        own = kwargs.pop("reasoning_effort", None)
        kwargs = {**self.default_kwargs, **kwargs}
        for found in (own, effort, kwargs.get("reasoning_effort")):
            if found is not None:
                break
        else:
            return kwargs
        if self.template and "low_effort" in self.template.variables:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                "reasoning_effort: what the engine makes of it for this template is not covered",
            )
        return {"reasoning_effort": found, **kwargs}
