"""Requests that are forwarded, whose bodies `forwarding/*.jsonl` have."""

from __future__ import annotations

import base64
import io
from typing import Any


def forwarding_requests() -> list[tuple[str, dict[str, Any]]]:
    wide, tall = _picture(64, 48, (200, 30, 30)), _picture(40, 90, (30, 200, 30))
    text = {"type": "text", "text": "What is in this picture?"}
    more = {"type": "text", "text": "And here?"}
    named = {**wide, "uuid": "page-1"}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("text", "Hi", {"request_id": "1", "priority": 0, "return_token_ids": True}),
        ("one image", [wide, text], streamed),
        ("adjacent images", [wide, tall, text], {"cache_salt": "tenant"}),
        ("images apart", [text, wide, more, tall], {}),
        ("one image twice", [wide, text, wide], {}),
        ("named image", [named, text], {}),
    ]
    return [
        (name, {"messages": [{"role": "user", "content": content}], **fields})
        for name, content, fields in cases
    ]


def _picture(width: int, height: int, color: tuple[int, int, int]) -> dict[str, Any]:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
