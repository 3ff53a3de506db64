"""Chats of the toy: texts and pictures, rendered with the model's own template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmroute.chat import Chat, MediaPart, ParsedChat, Part, TextPart
from mmroute.chat.cache import ChatCache
from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import default_template
from mmroute.engine import ChatSource
from mmroute.errors import ModelError, Reason, invalid, quoted
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request


@dataclass(frozen=True, slots=True)
class ToyChat(Chat):
    template: ChatTemplate
    special_tokens: Mapping[str, str]

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat_template": self.template.origin}

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        sent: Any = request.messages
        if not isinstance(sent, list | tuple) or not sent:
            raise invalid(f"messages must be a list with an entry, found {quoted(sent)}")
        pictures: list[MediaPart] = []
        contents = [_parts(message, pictures) for message in sent]
        return ParsedChat(sent, contents, {Modality.IMAGE: pictures} if pictures else {})

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        return self.template.render(
            chat.messages,
            variables=self.special_tokens,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=False,
        )


def load_chat(source: ChatSource[Any]) -> Chat:
    found = default_template(source.files)
    if found is None:
        raise ModelError(Reason.MISSING_FILE, f"{source.files.name} has no chat template")
    return ToyChat(ChatTemplate.compile(*found), source.tokenizer.template_tokens)


def _parts(message: Any, pictures: list[MediaPart]) -> list[Part]:
    match message:
        case {"role": "system" | "user" | "assistant", "content": str(text), **more} if not more:
            return [TextPart(text, {})]
        case {"role": "user", "content": list(sent), **more} if not more:
            return [_part(part, pictures) for part in sent]
    raise invalid(f"messages: the toy takes no message such as {quoted(message)}")


def _part(part: Any, pictures: list[MediaPart]) -> Part:
    match part:
        case {"type": "text", "text": str(text), **more} if not more:
            return TextPart(text, {})
        case {"type": "image", **more} if more.keys() <= {"url"}:
            number, url = len(pictures) + 1, more.get("url")
            if not isinstance(url, str | None):
                raise invalid(f"messages: a url must be a text, found {quoted(url)}")
            pictures.append(MediaPart(Modality.IMAGE, number, url, None, {}, part))
            return pictures[-1]
    raise invalid(f"messages: the toy takes no part such as {quoted(part)}")
