"""Chats of models whose template SGLang guesses by their path or type, in place of their own.

Source: SGLang 0.5.23 ``srt/parser/conversation.py`` (`generate_chat_conv`, `Conversation`),
``srt/entrypoints/openai/serving_chat.py`` (`_apply_conversation_template`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.engines.sglang.encoding import PromptEncoder
from mmroute.engines.sglang.message_schema import HANDED_ON, NOT
from mmroute.engines.sglang.messages import parse_messages, template_tools
from mmroute.errors import invalid
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

# In the engine's order: a pattern of the path, and the template.
_BY_PATH: Final = (
    (r"\bpoints\b", "points-v15-chat"),
    (r"moss.*vl", "moss-vl"),
    (r"internvl", "internvl-2-5"),
    (r"janus", "janus-pro"),
    (r"vicuna|llava-v1\.5|llava-next-video-7b", "vicuna_v1.1"),
    (r"deepseek.*vl2", "deepseek-vl2"),
    (r"llava-v1\.6-34b|llava-v1\.6-yi-34b|llava-next-video-34b|llava-onevision-qwen2",
     "chatml-llava"),
    (r"minicpm-v(?!-4[._][67])", "minicpmv"),
    (r"minicpm-o(?!-4[._][67])", "minicpmo"),
    (r"phi-4-multimodal", "phi-4-mm"),
    (r"deepseek-ocr", "deepseek-ocr"),
    (r"unlimited", "unlimited-ocr"),
    (r"paddleocr", "paddle-ocr"),
)  # fmt: skip
# Of a path that is a directory, the type of its model comes third, before the other patterns.
_FIRST: Final = 2
_BY_TYPE: Final = {
    "internvl_chat": "internvl-2-5",
    "deepseek_vl_v2": "deepseek-vl2",
    "multi_modality": "janus-pro",
    "phi4mm": "phi-4-mm",
    "minicpmv": "minicpmv",
    "minicpmo": "minicpmo",
    "moss_vl": "moss-vl",
    "deepseek-ocr": "deepseek-ocr",
    "unlimited-ocr": "unlimited-ocr",
    "paddleocr_vl": "paddle-ocr",
}
_OWN_TEMPLATE: Final = ("minicpmv4_6", "minicpmv4_7")
# After these no line break follows the token of an image.
_WITHOUT_BREAK: Final = ("moss-vl", "unlimited-ocr")
_SUPPLEMENTED: Final = "deepseek-vl2"  # the tokens of its images stand in front
_MANY: Final = 16  # images of a message, beyond which each text begins a line


@dataclass(frozen=True, slots=True)
class Template:
    """A conversation template of the engine."""

    name: str
    style: str
    system_template: str
    system_message: str
    roles: tuple[str, str]  # of the user and the assistant
    sep: str
    sep2: str | None
    stops: tuple[str, ...]
    image_token: str
    image_token_at_prefix: bool


def guessed_template(path: str, model_type: object, *, local: bool) -> Template | None:
    """The template that the engine takes by the path of a model; None for the model's own."""
    for number, (pattern, name) in enumerate(_BY_PATH):
        if number == _FIRST and local and (of_type := _BY_TYPE.get(str(model_type))):
            return _templates()[of_type]
        if re.search(pattern, path, re.IGNORECASE):
            if name.startswith("minicpm") and model_type in _OWN_TEMPLATE:
                continue
            return _templates()[name]
    return None


@cache
def _templates() -> dict[str, Template]:
    file = resources.files("mmroute.engines.sglang") / "conversations.json"
    listed = msgspec.json.decode(file.read_bytes(), type=_Conversations)
    return {template.name: template for template in listed.entries}


@dataclass(frozen=True, slots=True)
class _Conversations:
    entries: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class ConversationChat(Chat):
    """Renders chats with a template of the engine."""

    template: Template
    encoder: PromptEncoder

    @property
    def content_format(self) -> str:
        return "openai"

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": f"{self.template.name}, by the path or type of the model",
            "content_format": "the engine's own template",
        }

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        return parse_messages(request, calls=False)

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        template_tools(request)  # the engine checks them, and shows none
        system, turns = self._turns(chat)
        continued = request.continue_final_message and chat.messages[-1]["role"] == "assistant"
        if continued:
            text = _without_end(self.template, _prompt(self.template, system, turns))
        else:
            text = _prompt(self.template, system, [*turns, (self.template.roles[1], "")])
        if request.api_fields.get(HANDED_ON) == NOT and self.encoder.multimodal:
            return self.encoder.encode(text)
        if not self.encoder.multimodal:
            return self.encoder.encode(text, add_special_tokens=True)
        return self.encoder.prompt(text, with_items=bool(items))

    def _turns(self, chat: ParsedChat) -> tuple[str, list[tuple[str, str]]]:
        """The system message, and the role and text of each turn."""
        system = self.template.system_message
        user, assistant = self.template.roles
        turns: list[tuple[str, str]] = []
        for message, parts in zip(chat.messages, chat.contents, strict=True):
            role, content = message["role"], message["content"]
            if role == "system" and not parts and content != []:
                continue  # no content leaves the template's own
            if role == "user":
                turns.append((user, self._user(content)))
                continue
            if role not in ("system", "assistant"):
                raise invalid(f"the engine's template for this model has no role {role!r}")
            if isinstance(content, list):
                if [part["type"] for part in content] != ["text"]:
                    raise invalid(f"a message of the {role} must be one text for this model")
                content = content[0]["text"]
            if role == "system":
                system = content
            else:
                turns.append((assistant, content))
        return system, turns

    def _user(self, content: str | list[Mapping[str, Any]]) -> str:
        if isinstance(content, str):
            return content
        template = self.template
        count = sum(part["type"] == "image" for part in content)
        token = template.image_token
        if template.name not in _WITHOUT_BREAK:
            token += "\n"
        supplemented = template.name == _SUPPLEMENTED
        text = ""
        for part in content:
            if part["type"] == "text":
                crowded = count > _MANY and template.name != "unlimited-ocr"
                text += f"\n{part['text']}" if crowded else part["text"]
            elif not supplemented:
                text = token + text if template.image_token_at_prefix else text + token
        if supplemented:
            missing = count - text.count(template.image_token)
            if missing < 0:
                raise invalid(f"a message has more {template.image_token} than images")
            text = "\n".join([*[template.image_token] * missing, text])
        return text


def _prompt(template: Template, system_message: str, turns: Sequence[tuple[str, str]]) -> str:
    """The text of a conversation. A turn without a text is the one that the model writes."""
    system = template.system_template.format(system_message=system_message)
    sep, ends = template.sep, (template.sep, template.sep)
    begun = f"{system}{sep}" if system else ""
    before = alone = ""
    match template.style:
        case "chatml":
            begun = f"{system}{sep}\n" if system else ""
            before, alone, ends = "\n", "\n", (f"{sep}\n", f"{sep}\n")
        case "add_new_line_single":
            begun = begun if system_message else ""
            before, alone = "\n", "\n"
        case "add_colon_two" | "deepseekvl2":
            begun = f"{system}{sep}" if template.style == "add_colon_two" else begun
            before, alone, ends = ": ", ":", (sep, template.sep2 or "")
        case "unlimited_ocr":
            ends = (sep, template.sep2 or "")
        case "mpt":
            begun = f"{system}{sep}"
        case "no_colon_single":
            begun = system
        case _:
            return system + _paddle(template, turns)
    return begun + _joined(turns, before, alone, ends)


def _joined(
    turns: Sequence[tuple[str, str]], before: str, alone: str, after: tuple[str, str]
) -> str:
    """Each turn: its role, its text and what ends it, by turns."""
    return "".join(
        f"{role}{before}{text}{after[number % 2]}" if text else f"{role}{alone}"
        for number, (role, text) in enumerate(turns)
    )


def _paddle(template: Template, turns: Sequence[tuple[str, str]]) -> str:
    parts: list[str] = []
    for role, text in turns:
        parts.append(f"{role}: ")
        if text and role == template.roles[0]:
            image = template.image_token
            parts.append(text.replace(f"{image}\n", image) + "\n")
        elif text:
            parts.append(text + template.sep)
    return "".join(parts)


def _without_end(template: Template, text: str) -> str:
    """A conversation that ends in the assistant's words, without what ends a turn."""
    for end in (*template.stops, template.sep, template.sep2):
        if end:
            text = text.removesuffix(end)
    return text
