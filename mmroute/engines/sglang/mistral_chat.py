"""Chats of models with a ``tekken.json``, which SGLang encodes with mistral-common.

Source: SGLang 0.5.23 ``srt/utils/hf_transformers/mistral_utils.py``
(`patch_mistral_common_tokenizer`), ``srt/entrypoints/openai/serving_chat.py``
(`_prompt_text_round_trip_is_lossy`); transformers 5.19.0 ``tokenization_mistral_common.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mistral_common.protocol.instruct.request import ChatCompletionRequest

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.chat.template_parameters import TRANSFORMERS_MISTRAL
from mmroute.engines.sglang.encoding import PromptEncoder
from mmroute.engines.sglang.messages import parse_messages, split_last, template_tools
from mmroute.errors import InexactError, Reason, invalid
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds, as_token_ids
from mmroute.tokenizers.formats.mistral import MistralChatEncoder, MistralTokenizer

# Others change nothing.
_PARAMETERS: Final = TRANSFORMERS_MISTRAL | ChatCompletionRequest.model_fields.keys()
_IMAGE: Final = "[IMG]"
# The only special tokens that are read in a text.
_MARKERS: Final = re.compile(r"(\[IMG\]|\[IMG_BREAK\]|\[IMG_END\])")


@dataclass(frozen=True, slots=True)
class MistralCommonChat(Chat):
    """Encodes chats with mistral-common, images as text that is encoded once more."""

    chats: MistralChatEncoder
    encoder: PromptEncoder

    @property
    def content_format(self) -> str:
        return "openai"

    @property
    def origins(self) -> Mapping[str, str]:
        return {"content_format": "mistral-common's encoder"}

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        return parse_messages(request)

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        if request.reasoning_effort is not None:
            raise InexactError(Reason.UNSUPPORTED_FIELD, "reasoning_effort: it is not covered")
        if set_twice := sorted(_PARAMETERS & request.chat_template_kwargs.keys()):
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"chat_template_kwargs ({', '.join(set_twice)}): what mistral-common makes of it "
                "is not covered",
            )
        messages, continued = split_last(chat.messages, request)
        kept = [_adapted(message) for message in messages if not _is_empty(message)]
        tools = template_tools(request)
        ids = self.chats.encode(kept, tools=tools, continue_final_message=False)
        if continued:
            ids = np.concatenate([ids, self.encoder.continued(continued)])
        if items:  # the special tokens become letters
            return self.encoder.encode(self.encoder.tokenizer.decode(ids.tolist()))
        if self.encoder.kept.control_tokens:
            return ids
        if not self.encoder.multimodal:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                "messages: SGLang before 0.5.21 makes letters of mistral-common's control tokens, "
                "which is not covered for models that take no images",
            )
        return self.encoder.encode(
            self.encoder.tokenizer.decode(ids.tolist()), add_special_tokens=True
        )


class MarkedTokenizer(MistralTokenizer):
    """mistral-common's text encoder as SGLang has it, which reads marks of images in a text.

    Source: SGLang 0.5.23 ``srt/utils/hf_transformers/mistral_utils.py``
    (`_text_to_ids_with_pixtral_markers`).
    """

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        first, *others = _MARKERS.split(text)
        ids = [super().encode(first, add_special_tokens=add_special_tokens)]
        for part in others:
            if not _MARKERS.fullmatch(part):
                ids.append(super().encode(part, add_special_tokens=False))
            elif part in self.special_tokens:
                ids.append(as_token_ids([self.special_tokens[part]]))
            else:
                raise ValueError(f"{part} is no token of this vocabulary, and SGLang reads it")
        return np.concatenate(ids)


def _adapted(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose parts are one text, if one of them is an image."""
    content = message["content"]
    if not isinstance(content, list) or all(part["type"] == "text" for part in content):
        return dict(message)
    return {**message, "content": "".join(_texts(content))}


def _texts(content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in content:
        if part["type"] == "tool_reference":
            raise invalid("mistral-common has no parts of type tool_reference")
        yield part["text"] if part["type"] == "text" else _IMAGE


def _is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message is dropped: an assistant's, without words and calls."""
    if message["role"] != "assistant" or message.get("tool_calls"):
        return False
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part.get("text", "x") for part in content]
    return not any(text.strip() for text in texts)
