"""The exact answer to a chat, of whichever route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.chats import request_for
from mmroute.engines.vllm.bodies.rules import ChatFields
from mmroute.errors import Reason
from mmroute.requests.items import Modality
from mmroute.server.api_errors import ApiError, bad_request
from mmroute.server.engines.vllm.model import Call
from mmroute.server.engines.vllm.rendering import exact

_KEYS: Final[Mapping[str, Modality]] = {
    "image_url": Modality.IMAGE,
    "video_url": Modality.VIDEO,
    "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
    "audio_embeds": Modality.AUDIO,
}
"""Keys of content parts -> the modality of the item they hold."""


def exact_chat(chat: ChatFields, call: Call, *, limited: bool) -> Routing:
    """The exact answer to a chat.

    Args:
        chat: the chat.
        call: the model to ask, and the options that the operator set.
        limited: whether to refuse a prompt longer than the context. One that is only counted
            (``/tokenize``), or cut afterwards, is not refused.

    Raises:
        ApiError: vLLM refuses the request, or it has no exact answer.
    """
    call.model.chats.check_trust(chat, trusted=call.options.trusts_mm_kwargs)
    request = request_for(chat, call.model.loras, call.model.chats)
    normalizer = call.model.normalizer if limited else call.model.unlimited
    routing = normalizer.answer(request)
    if routing.reason is not None:
        special = _named_otherwise(call, request.messages or (), routing.reason)
        if special is not None:
            raise special
    return exact(routing, call.options)


def _named_otherwise(call: Call, messages: Sequence[Any], reason: Reason) -> ApiError | None:
    """The error for a reason whose status or `param` in vLLM is not the usual one; else None."""
    model = call.model
    if reason is Reason.UNSUPPORTED_MODALITY:
        found = {m for part in _parts(messages) for key, m in _KEYS.items() if key in part}
        refused = found - model.model.media.keys() - model.model.uncovered.keys()
        if refused and not model.model.media:
            return bad_request(f"{model.name} is not a multimodal model", reason=reason)
        for modality in sorted(refused):
            text = f"At most 0 {modality}(s) may be provided in one prompt."
            return bad_request(text, modality, reason=reason)
    if reason is Reason.IMAGE_UNREADABLE and any(map(_is_not_base64, _parts(messages))):
        return ApiError(
            HTTPStatus.NOT_IMPLEMENTED,
            "NotImplementedError",
            "Only base64 data URLs are supported for now.",
            reason=reason,
        )
    if reason is Reason.IMAGE_COUNT_MISMATCH:  # a part without any image: no such part in vLLM
        return bad_request(
            "Unsupported chat content part type: 'image'. Send images as `image_url` parts with a "
            "data URL.",
            "type",
            reason=reason,
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
