"""Exact answers to chats, and the errors of the routes that take them.

Source: vLLM 0.33.0 ``renderers/online_renderer.py`` (`render_chat`, `validate_chat_template`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.api.errors import ApiError, bad_request, of_reason
from mmroute.engines.vllm.api.routings import ChatRequest, route_chat
from mmroute.errors import Reason
from mmroute.requests.items import Modality
from mmroute.server.loading import LoadedModel
from mmroute.server.settings import ServerSettings

_WARM_UP: Final = "warmup"
# The normalizer's messages advise its caller, and these the client and operator of a server.
_OF_THIS_SERVER: Final[Mapping[Reason, str]] = {
    Reason.IMAGE_SIZE_UNKNOWN: "an image is a link, and this server follows none, or it has only "
    "a uuid; send it as a data URL, or allow its host (mmroute serve --image-host)",
    Reason.IMAGE_LINK_REFUSED: "an image is a link that this server does not follow; allow its "
    "host and network (mmroute serve --image-host, --image-network)",
}
_KEYS: Final[Mapping[str, Modality]] = {
    "image_url": Modality.IMAGE,
    "video_url": Modality.VIDEO,
    "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
    "audio_embeds": Modality.AUDIO,
}
"""Keys of content parts -> the modality of the item they hold."""


def exact_chat(loaded: LoadedModel, request: ChatRequest, settings: ServerSettings) -> Routing:
    """The exact answer to a chat.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    check_trust(loaded, request, settings)
    if (typed := _with_part_types(request.messages)) is not request.messages:
        request.messages = typed
    routing = route_chat(loaded, request)
    if routing.reason is not None:
        special = _named_otherwise(loaded, request.messages, routing.reason)
        if special is not None:
            raise special
    return exact(loaded, routing)


def exact(loaded: LoadedModel, routing: Routing) -> Routing:
    """The same routing, if it is exact.

    Raises:
        ApiError: it is not.
    """
    if routing.reason is not None:
        message = _OF_THIS_SERVER.get(routing.reason, routing.message)
        raise of_reason(routing.reason, message, model=loaded.name)
    return routing


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


def check_template(request: ChatRequest) -> None:
    """Refuse a request that brings a chat template.

    Raises:
        ApiError: 400.
    """
    in_kwargs = (request.chat_template_kwargs or {}).get("chat_template")
    if request.chat_template is not None or in_kwargs is not None:
        raise bad_request(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )


def check_trust(loaded: LoadedModel, request: ChatRequest, settings: ServerSettings) -> None:
    """Refuse fields of clients that are not trusted; chats rendered by Harmony read none of them.

    Raises:
        ApiError: 400.
    """
    if loaded.by_harmony:
        return
    check_template(request)
    if settings.trust_request_mm_kwargs:
        return
    for name, given, changed in (
        ("mm_processor_kwargs", request.mm_processor_kwargs, "preprocessing"),
        ("media_io_kwargs", request.media_io_kwargs, "media loading"),
    ):
        if given:
            raise bad_request(
                f"Per-request {name} are disabled by default because they can change multimodal "
                f"{changed} resource usage. Start the server with --trust-request-mm-kwargs only "
                "when clients are trusted.",
                name,
            )


def _named_otherwise(
    loaded: LoadedModel, messages: Sequence[Any], reason: Reason
) -> ApiError | None:
    """The error where vLLM has another status or `param` than is usual for a reason; else None."""
    if reason is Reason.UNSUPPORTED_MODALITY:
        found = {m for part in _parts(messages) for key, m in _KEYS.items() if key in part}
        if found and not loaded.model.media:
            text = f"{loaded.name} is not a multimodal model"
            return bad_request(text, reason=reason, model=loaded.name)
        for refused in sorted(found - loaded.model.media.keys()):
            text = f"At most 0 {refused}(s) may be provided in one prompt."
            return bad_request(text, refused, reason=reason, model=loaded.name)
    if reason is Reason.IMAGE_UNREADABLE and any(map(_is_not_base64, _parts(messages))):
        return ApiError(
            HTTPStatus.NOT_IMPLEMENTED,
            "NotImplementedError",
            "Only base64 data URLs are supported for now.",
            reason=reason,
            model=loaded.name,
        )
    if reason is Reason.IMAGE_COUNT_MISMATCH:  # a part without any image: no such part in vLLM
        return bad_request(
            "Unsupported chat content part type: 'image'. Send images as `image_url` parts with a "
            "data URL.",
            "type",
            reason=reason,
            model=loaded.name,
        )
    return None


def _parts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        part
        for message in messages
        if isinstance(message.get("content"), list)
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
