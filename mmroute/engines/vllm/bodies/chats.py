"""The request that a client's chat stands for.

Source: vLLM ``renderers/online_renderer.py`` (`render_chat`, `validate_chat_template`), and
its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from mmroute.engines.vllm.bodies.errors import require
from mmroute.engines.vllm.bodies.rules import ChatFields, ChatRules
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.requests.items import Modality
from mmroute.requests.request import NO_KWARGS, ClientRequest, Request, lora_of


def image_part(url: str | None, **more: Any) -> dict[str, Any]:
    """The content part of an image."""
    require(url, "An image has neither data nor a URL.", "multi_modal_uuids")
    return {"type": "image_url", "image_url": {"url": url}, **more}


def function_tool(name: str, fields: Mapping[str, Any]) -> ChatCompletionToolsParam:
    """A tool of a chat, with the fields that all APIs have. A missing field is null."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": fields.get("description"),
            "parameters": fields.get("parameters"),
            "strict": fields.get("strict"),
            "defer_loading": fields.get("defer_loading"),
        },
    }


def request_of(fields: ChatFields, loras: Mapping[str, str], **more: Any) -> Request:
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
        lora=lora_of(loras, fields.model),
        **more,
    )


def request_for(chat: ChatFields, loras: Mapping[str, str], rules: ChatRules) -> Request:
    """The request of a chat to a model of which the rules are known."""
    request = chat.to_request(loras)
    if rules.rust:  # which has rules of its own for these
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
    if chat.tools == [] and rules.templated and not rules.excludes_tools:
        # There are no tools, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **request.chat_template_kwargs}
        return request._replace(chat_template_kwargs=kwargs)
    return request


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
