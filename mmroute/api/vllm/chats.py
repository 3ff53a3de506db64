"""The steps that all routes with chats share.

Source: vLLM ``renderers/online_renderer.py`` (`render_chat`, `validate_chat_template`), and
its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel

from mmroute.answering.routing import Routing
from mmroute.api.vllm.call import Call
from mmroute.api.vllm.chat_rules import ChatFields
from mmroute.api.vllm.errors import ApiError, bad_request
from mmroute.api.vllm.rendering import exact
from mmroute.engines.frontends import Frontend
from mmroute.errors import Reason
from mmroute.requests.items import Modality
from mmroute.requests.request import NO_KWARGS, Request, lora_of

_KEYS: Final[Mapping[str, Modality]] = {
    "image_url": Modality.IMAGE,
    "video_url": Modality.VIDEO,
    "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
    "audio_embeds": Modality.AUDIO,
}
"""Keys of content parts -> the modality of the item they hold."""


def request_of(fields: ChatFields, loras: Mapping[str, str], **more: Any) -> Request:
    """The request that has these fields.

    Args:
        fields: the fields of a body.
        loras: the path of each LoRA adapter, by its name.
        more: further fields of the request, which only one of the routes has.
    """
    media = fields.media_io_kwargs
    return Request(
        model=fields.model,
        messages=_with_part_types(fields.messages),
        tools=fields.tools or None,
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=fields.continue_final_message,
        add_special_tokens=fields.add_special_tokens,
        chat_template_kwargs=fields.chat_template_kwargs or NO_KWARGS,
        mm_processor_kwargs=fields.mm_processor_kwargs or NO_KWARGS,
        # vLLM reads over modalities it does not know.
        media_io_kwargs={m: media[m] for m in Modality if m in media} if media else NO_KWARGS,
        lora=lora_of(loras, fields.model),
        **more,
    )


def request_for(chat: ChatFields, call: Call) -> Request:
    """The request of a chat for the normalizer of its model."""
    request = chat.to_request(call.model.loras)
    if call.model.model.engine.frontend is Frontend.RUST:  # which has rules of its own for these
        processor, media_io = chat.mm_processor_kwargs, chat.media_io_kwargs
        generates: bool | None = chat.add_generation_prompt
        if generates is None or "add_generation_prompt" not in chat.model_fields_set:
            generates = not chat.continue_final_message
        plain = {
            name: value.model_dump(by_alias=True, exclude_unset=True)
            if isinstance(value, BaseModel)
            else value
            for name, value in request.api_fields.items()
        }
        return request._replace(
            api_fields=plain,
            add_generation_prompt=generates,
            messages=chat.messages,
            tools=chat.tools,
            mm_processor_kwargs=NO_KWARGS if processor is None else processor,
            media_io_kwargs=NO_KWARGS if media_io is None else media_io,
        )
    settings = call.model.model.settings
    as_without = settings.excludes_tools or call.model.model.chat.templates is None
    if chat.tools == [] and not as_without:
        # There are no tools, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **request.chat_template_kwargs}
        return request._replace(chat_template_kwargs=kwargs)
    return request


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
    call.model.chats.check_trust(chat, call.options, call.model.model.settings)
    request = request_for(chat, call)
    normalizer = call.model.normalizer if limited else call.model.unlimited
    routing = normalizer.answer(request)
    if routing.reason is not None:
        special = _named_otherwise(call, request.messages or (), routing.reason)
        if special is not None:
            raise special
    return exact(routing, call.options)


def _with_part_types(messages: list[Any]) -> list[Any]:
    """Name the parts of a warm-up request, which some clients build by hand and without types.

    vLLM refuses them with a 400, upon which llm-d tries 24 times. No other request is read more
    leniently than vLLM reads it.
    """
    if len(messages) != 1 or not isinstance(parts := messages[0].get("content"), list):
        return messages
    if not parts or not isinstance(parts[0], dict) or parts[0] != {"text": "warmup"}:
        return messages
    typed = [
        {"type": "image_url" if "image_url" in part else "text", **part}
        if isinstance(part, dict)
        else part
        for part in parts
    ]
    return [{**messages[0], "content": typed}]


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
