"""The request that a client's chat stands for.

Source: vLLM ``renderers/online_renderer.py`` (`render_chat`, `validate_chat_template`), and
its answers as observed.
"""

from __future__ import annotations

from typing import Any, Protocol

from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.requests.items import Modality
from mmroute.requests.request import NO_KWARGS, ClientRequest, Request


class ChatFields(Protocol):
    """The fields that all requests with a chat have."""

    model: str | None
    messages: list[Any]
    tools: list[ChatCompletionToolsParam] | None
    add_generation_prompt: bool
    continue_final_message: bool
    add_special_tokens: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None

    @property
    def model_fields_set(self) -> set[str]:
        """The names of the fields that the client sent."""

    def to_request(self) -> Request:
        """The request for a normalizer."""


def request_of(fields: ChatFields, **more: Any) -> Request:
    """The request that has these fields."""
    media = fields.media_io_kwargs
    return ClientRequest(
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
        **more,
    )


def _with_part_types(messages: list[Any]) -> list[Any]:
    """Name the parts of a warm-up request, without which llm-d gets a 400 and tries 24 times."""
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
