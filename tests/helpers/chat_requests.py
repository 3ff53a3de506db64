"""Requests that many tests send, and the routes of an engine that they are for."""

from __future__ import annotations

from typing import Any, Final

from media_files import png_url

TOKENIZE: Final = "/tokenize"
DETOKENIZE: Final = "/detokenize"
CHAT: Final = "/v1/chat/completions/render"
COMPLETION: Final = "/v1/completions/render"
MESSAGES: Final = "/v1/messages/render"
RESPONSES: Final = "/v1/responses/render"
HI: Final[list[dict[str, Any]]] = [{"role": "user", "content": "Hi"}]
EMBEDDINGS: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": [{"type": "image_embeds", "image_embeds": "x"}]}
]
"""A chat without an exact answer: vLLM may answer it."""


def picture(width: int, height: int, **more: Any) -> dict[str, Any]:
    """A part with a PNG of this size."""
    return {"type": "image_url", "image_url": {"url": png_url(width, height)}, **more}


def user(*parts: Any) -> list[dict[str, Any]]:
    """A chat of one message."""
    return [{"role": "user", "content": list(parts)}]
