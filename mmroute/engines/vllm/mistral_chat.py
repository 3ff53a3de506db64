"""Renders chats of models in Mistral's own format: mistral-common makes the token IDs.

Source: vLLM ``renderers/mistral.py`` and ``tokenizers/mistral.py``, transformers
``tokenization_mistral_common.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import ParsedChat
from mmroute.chat.template_parameters import TRANSFORMERS_MISTRAL, VLLM_MISTRAL
from mmroute.engines.vllm.messages import VllmChat, to_conversation
from mmroute.engines.vllm.tools import MISTRAL_ID_LENGTH, normalize_tools
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import AudioLength, ImageFile, ImageSize, Item, Items, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.formats.mistral import MistralChatEncoder

_LINK_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "image": frozenset({"url", "detail"}),
    "image_url": frozenset({"url", "detail"}),
    "audio": frozenset({"url"}),
    "audio_url": frozenset({"url"}),
}
"""Type of a part that has an item -> the keys of its link that mistral-common takes."""
_INLINE: Final = "input_audio"
_SCHEMES: Final = ("data:", "http", "file://")
_ESCAPES: Final = frozenset("%?#")
# Those that are taken away here have no effect on the IDs.
_ENCODER_PARAMETERS: Final = (TRANSFORMERS_MISTRAL | VLLM_MISTRAL | {"chat_template"}) - {
    "add_generation_prompt", "continue_final_message", "reasoning_effort", "return_dict",
    "return_tensors",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MistralChat(VllmChat):
    """Renders chats with mistral-common, from the numbers of items alone."""

    encoder: MistralChatEncoder  # mistral-common's encoder of chats
    # Whether chat_template_kwargs are refused, as by the server. `LLM.chat` takes them.
    as_server: bool

    @property
    def origins(self) -> Mapping[str, str]:
        return {"content_format": "mistral-common's encoder"}

    @property
    def templates(self) -> None:
        """None: the tokenizer encodes chats itself."""

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        if not request.messages:
            raise invalid("messages must not be empty")
        return super(MistralChat, self).read(request)  # a class with slots knows no bare super()

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        # Template variables have no effect without a template; what steers the encoder has.
        given = request.chat_template_kwargs.keys()
        refused = given if self.as_server else given & _ENCODER_PARAMETERS
        if refused:
            raise invalid(f"chat_template_kwargs must not set {', '.join(sorted(refused))}")
        _check_end(chat.messages[-1]["role"], request)
        # The engine hands the original messages on, with the parsed tool arguments in them.
        parsed = to_conversation(chat, content_format="string", placeholders={})
        sized = _with_sizes(chat.messages, items)
        for message, result in zip(sized, parsed, strict=True):
            if "tool_calls" in result:
                message["tool_calls"] = result["tool_calls"]
        _shorten_call_ids(sized)
        return self.encoder.encode(
            sized,
            tools=normalize_tools(request.tools),
            continue_final_message=request.continue_final_message,
            reasoning_effort=request.reasoning_effort,
        )


def _shorten_call_ids(messages: Sequence[dict[str, Any]]) -> None:
    """Keep the end of each ID, as vLLM's server does before mistral-common checks the lengths."""
    for message in messages:
        if message["role"] == "assistant" and message.get("tool_calls"):
            message["tool_calls"] = [
                {**call, "id": call["id"][-MISTRAL_ID_LENGTH:]} for call in message["tool_calls"]
            ]
        elif message["role"] == "tool" and isinstance(message.get("tool_call_id"), str):
            message["tool_call_id"] = message["tool_call_id"][-MISTRAL_ID_LENGTH:]


def _check_end(last_role: str, request: Request) -> None:
    if request.add_generation_prompt and last_role == "assistant":
        raise invalid(
            "add_generation_prompt cannot follow an assistant message; use continue_final_message"
        )
    if request.continue_final_message and last_role != "assistant":
        raise invalid("continue_final_message needs an assistant message at the end for this model")


def _with_sizes(messages: Sequence[dict[str, Any]], items: Items) -> list[dict[str, Any]]:
    """Copies of the messages with every item's part replaced by one that names its numbers only."""
    waiting = {modality: iter(listed) for modality, listed in items.items()}
    result = []
    for message in messages:
        copied = dict(message)
        if isinstance(copied.get("content"), list):
            copied["content"] = [
                _sized(part, waiting)
                for part in copied["content"]
                # Parts without a type are dropped by the engine's adapter.
                if not isinstance(part, dict) or part.get("type")
            ]
        result.append(copied)
    return result


def _sized(part: Any, items: Mapping[Modality, Iterator[Item]]) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part["type"]
    if kind == _INLINE:
        return _as_part(next(items[Modality.AUDIO]), inline=True)
    if not isinstance(kind, str) or kind not in _LINK_KEYS:
        return part
    name = kind if kind.endswith("_url") else f"{kind}_url"
    link = part.get(name, {})
    if not isinstance(link, dict):
        raise invalid(f"{name} must be an object with a url, found {quoted(link)}")
    unknown = link.keys() - _LINK_KEYS[kind]
    if unknown:
        raise invalid(
            f"{name} has keys that mistral-common refuses: {', '.join(map(str, unknown))}"
        )
    url = link.get("url", "data:")
    if not url.startswith(_SCHEMES):
        raise invalid(
            f"mistral-common knows the schemes {', '.join(_SCHEMES)} in lower case only, found "
            f"{quoted(url[:10])}"
        )
    if url.startswith("file:") and not _ESCAPES.isdisjoint(url):
        raise InexactError(
            Reason.IMAGE_LINK_REFUSED,
            f"vLLM decodes a file: link and mistral-common does not, so they read two files: "
            f"{quoted(url)}",
        )
    return _as_part(next(items[Modality(kind.removesuffix("_url"))]), inline=False)


def _as_part(item: Item, *, inline: bool) -> dict[str, Any]:
    match item:
        case AudioLength():
            return MistralChatEncoder.audio_part(item, inline=inline)
        case ImageFile():
            return MistralChatEncoder.image_part(item.stored)
        case ImageSize():
            return MistralChatEncoder.image_part(item)
        case _:
            raise invalid(f"mistral-common takes images and audio, found {quoted(item)}")
