"""What the chat routes have in common: the fields that decide over the prompt.

Source: vLLM 0.33.0 ``renderers/online_renderer.py`` (`render_chat`, `validate_chat_template`),
``entrypoints/openai/chat_completion/protocol.py``, ``entrypoints/serve/tokenize/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, Reason, shown
from mmroute.items import Modality
from mmroute.normalizer import Normalizer
from mmroute.pipeline import text_prefix
from mmroute.request import Request
from mmroute.routing import Routing
from mmroute.server.errors import ApiError, bad_request, of_reason, wrong_field
from mmroute.server.fields import Body, boolean, fits, object_, object_of, read, read_nullable, text
from mmroute.server.models import ServedModel
from mmroute.server.settings import ServerSettings

__all__ = ["ChatFields", "beginning_of_chat", "exact", "read_chat", "route_chat"]

_WARM_UP: Final = "warmup"
_FIRST_MESSAGE_TYPE: Final = "ChatCompletionDeveloperMessageParam"  # which vLLM tries first
# The normalizer's advice is for those who call it.
_OF_THIS_SERVER: Final[Mapping[Reason, str]] = {
    Reason.IMAGE_SIZE_UNKNOWN: "an image is a link, and this server follows none; send it as a "
    "data URL, or allow its host (mmroute serve --image-host)",
    Reason.IMAGE_LINK_REFUSED: "an image is a link that this server does not follow; allow its "
    "host and network (mmroute serve --image-host, --image-network)",
}
_AUDIO: Final = frozenset({"audio_url", "input_audio", "audio_embeds"})


@dataclass(frozen=True, slots=True)
class ChatFields:
    """The fields of a chat request that decide over its prompt."""

    messages: Sequence[Any]
    tools: list[Any] | None
    add_generation_prompt: bool
    continue_final_message: bool
    add_special_tokens: bool
    chat_template: str | None
    chat_template_kwargs: Mapping[str, Any]
    mm_processor_kwargs: Mapping[str, Any]
    media_io_kwargs: Mapping[str, Any]


def read_chat(body: Body) -> ChatFields:
    """Read and check them.

    Raises:
        ApiError: 400: a field is of another kind.
    """
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise bad_request(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        )
    return ChatFields(
        messages=_messages(body),
        tools=_tools(body),
        add_generation_prompt=read(body, "add_generation_prompt", boolean, True),
        continue_final_message=read(body, "continue_final_message", boolean, False),
        add_special_tokens=read(body, "add_special_tokens", boolean, False),
        chat_template=read_nullable(body, "chat_template", text),
        chat_template_kwargs=read_nullable(body, "chat_template_kwargs", object_) or {},
        mm_processor_kwargs=read_nullable(body, "mm_processor_kwargs", object_) or {},
        media_io_kwargs=read_nullable(body, "media_io_kwargs", object_of(object_)) or {},
    )


def route_chat(
    served: ServedModel,
    normalizer: Normalizer,
    chat: ChatFields,
    settings: ServerSettings,
    *,
    cache_salt: str | None = None,
) -> Routing:
    """The exact answer to a chat.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    _check_trust(served, chat, settings)
    routing = normalizer.normalize(
        messages=chat.messages, cache_salt=cache_salt, **_options(served, chat)
    )
    if routing.reason is not None:
        special = _named_otherwise(served, chat.messages, routing.reason)
        if special is not None:
            raise special
    return exact(served, routing)


def beginning_of_chat(
    served: ServedModel, chat: ChatFields, *, cache_salt: str | None = None
) -> Routing | None:
    """The tokens before the first image, as a prompt of their own; None where nobody can say."""
    found = text_prefix(served.model, Request(messages=chat.messages, **_options(served, chat)))
    return None if found is None else Routing(cache_salt=cache_salt, _token_ids=found)


def exact(served: ServedModel, routing: Routing) -> Routing:
    """The same routing, if it is exact.

    Raises:
        ApiError: it is not.
    """
    if routing.reason is not None:
        message = _OF_THIS_SERVER.get(routing.reason, routing.message)
        raise of_reason(routing.reason, message, model=served.name)
    return routing


def _options(served: ServedModel, chat: ChatFields) -> dict[str, Any]:
    kwargs = chat.chat_template_kwargs
    if chat.tools == [] and served.model.chat.templates is not None:
        # None, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **kwargs}
    return {
        "tools": chat.tools or None,
        "add_generation_prompt": chat.add_generation_prompt,
        "continue_final_message": chat.continue_final_message,
        "add_special_tokens": chat.add_special_tokens,
        "chat_template_kwargs": kwargs,
        "mm_processor_kwargs": chat.mm_processor_kwargs,
    }


def _messages(body: Body) -> list[Any]:
    if "messages" not in body:
        raise wrong_field("body.messages", "Field required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise wrong_field("body.messages", f"Input should be a valid list, found {shown(messages)}")
    for index, message in enumerate(messages):
        where = f"body.messages.{index}.{_FIRST_MESSAGE_TYPE}"
        if not isinstance(message, dict):
            raise wrong_field(where, "Input should be a valid dictionary")
        if not isinstance(message.get("role"), str):
            missing = "role" if "content" in message else "content"
            raise wrong_field(f"{where}.{missing}", "Field required")
    return _with_part_types(messages)


def _with_part_types(messages: list[Any]) -> list[Any]:
    """Name the parts of a warm-up request, which some clients build by hand and without types.

    vLLM refuses them with a 400, upon which llm-d tries 24 times. Nothing but a warm-up is read
    more leniently than vLLM reads it.
    """
    if len(messages) != 1 or not isinstance(parts := messages[0].get("content"), list):
        return messages
    if not parts or not isinstance(parts[0], dict) or parts[0] != {"text": _WARM_UP}:
        return messages
    typed = [
        {"type": "image_url" if "image_url" in part else "text", **part}
        if isinstance(part, dict)
        else part
        for part in parts
    ]
    return [{**messages[0], "content": typed}]


def _tools(body: Body) -> list[Any] | None:
    tools = body.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise wrong_field("body.tools", f"Input should be a valid list, found {shown(tools)}")
    for index, tool in enumerate(tools):
        try:
            normalize_tools([tool])
        except InexactError as inexact:
            raise wrong_field(f"body.tools.{index}{_wrong_part(tool)}", str(inexact)) from None
    return tools


def _wrong_part(tool: object) -> str:
    """Which field of a tool its schema stumbles over first."""
    if not isinstance(tool, dict):
        return ""
    if tool.get("type", "function") != "function":
        return ".type"
    function = tool.get("function")
    if not isinstance(function, dict):
        return ".function"
    if not isinstance(function.get("name"), str):
        return ".function.name"
    kinds = {"description": text, "parameters": object_, "strict": boolean}
    wrong = (
        name
        for name, kind in kinds.items()
        if function.get(name) is not None and not fits(kind, function[name])
    )
    return f".function.{next(wrong, 'defer_loading')}"


def _check_trust(served: ServedModel, chat: ChatFields, settings: ServerSettings) -> None:
    if chat.chat_template is not None or chat.chat_template_kwargs.get("chat_template") is not None:
        raise bad_request(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )
    for name, given in (
        ("mm_processor_kwargs", chat.mm_processor_kwargs),
        ("media_io_kwargs", chat.media_io_kwargs),
    ):
        if given and not settings.trust_request_mm_kwargs:
            raise bad_request(
                f"Per-request {name} are disabled by default. Start the server with "
                f"--trust-request-mm-kwargs only when clients are trusted. (parameter={name})",
                name,
            )
    if chat.media_io_kwargs:
        raise of_reason(
            Reason.UNSUPPORTED_FIELD,
            "media_io_kwargs: the engine's token IDs depend on it, and it is not covered",
            model=served.name,
        )


def _named_otherwise(
    served: ServedModel, messages: Sequence[Any], reason: Reason
) -> ApiError | None:
    """An error for which vLLM has another status or `param` than for others of its reason."""
    if reason is Reason.UNSUPPORTED_MODALITY:
        refused = "audio" if Modality.IMAGE in served.model.media else "image"
        if refused == "image" or any(_AUDIO & part.keys() for part in _parts(messages)):
            text_ = f"At most 0 {refused}(s) may be provided in one prompt. (parameter={refused})"
            error = bad_request(text_, refused)
            error.reason, error.model = reason, served.name
            return error
    if reason is Reason.IMAGE_UNREADABLE and any(map(_is_not_base64, _parts(messages))):
        return ApiError(
            HTTPStatus.NOT_IMPLEMENTED,
            "NotImplementedError",
            "Only base64 data URLs are supported for now.",
            reason=reason,
            model=served.name,
        )
    if reason is Reason.IMAGE_COUNT_MISMATCH:  # a part without any image: no such part in vLLM
        error = bad_request(
            "Unsupported chat content part type: 'image'. Send images as `image_url` parts with a "
            "data URL.",
            "type",
        )
        error.reason, error.model = reason, served.name
        return error
    return None


def _parts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        part
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict)
    ]


def _is_not_base64(part: Mapping[str, Any]) -> bool:
    link = part.get("image_url")
    url = link.get("url") if isinstance(link, dict) else None
    if not isinstance(url, str) or url[:5].lower() != "data:":
        return False
    head, comma, _ = url.partition(",")
    return bool(comma) and not head.endswith(";base64")
