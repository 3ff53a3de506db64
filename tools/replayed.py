"""The HTTP requests that a vector's request is: one for each route that takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chat_requests import CHAT, COMPLETION, TOKENIZE

from mmroute.lab.parity.cases import UndecidedError
from mmroute.lab.parity.oracles.common import given, prompt_field
from mmroute.lab.parity.oracles.pictures import has_media, with_pictures

_CHAT_FIELDS: Final = (
    "add_special_tokens", "add_generation_prompt", "continue_final_message",
    "chat_template_kwargs", "tools", "mm_processor_kwargs", "cache_salt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Posted:
    """One request as it is sent.

    Attributes:
        name: for the report.
        path: the route.
        body: JSON, or bytes as they are.
        several: whether more than one thing may be wrong with it.
    """

    name: str
    path: str
    body: Any
    several: bool = False

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the body; none where it is no object."""
        body = self.body
        if isinstance(body, bytes):
            try:
                body = json.loads(body)
            except (ValueError, RecursionError):
                return {}
        return body if isinstance(body, Mapping) else {}


def posted(case: Mapping[str, Any]) -> list[Posted]:
    """The requests of one case.

    Raises:
        UndecidedError: there is no route for it, and why.
    """
    if case.get("lora"):
        raise UndecidedError("asks for a LoRA adapter, and there is none")
    match prompt_field(case):
        case "messages":
            bodies = _chat(case)
        case _ if case.get("images"):
            raise UndecidedError("a completion with images, which no route takes")
        case "prompt":
            body = given(case, "prompt", "add_special_tokens")
            salt = given(case, "cache_salt")
            bodies = [(COMPLETION, {**body, **salt}), (TOKENIZE, body)]
        case _:
            ids = {"prompt": case["prompt_token_ids"], **given(case, "cache_salt")}
            bodies = [(COMPLETION, ids)]
    return [Posted(f"{case['id']} {path}", path, body) for path, body in bodies]


def _chat(case: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    images = case.get("images") or []
    messages = with_pictures(case["messages"], images)
    _name(messages, images)
    body = {"messages": messages, **given(case, *_CHAT_FIELDS)}
    rendered = {**body, "mm_payload": "none"} if has_media(messages) else body
    bodies = [(CHAT, rendered), (TOKENIZE, body)]
    if case.get("tools"):
        # Without a tool parser vLLM refuses them on the first route, unless none may be called.
        bodies.append((CHAT, {**rendered, "tool_choice": "none"}))
    return bodies


def _name(messages: Any, images: Any) -> None:
    """Give the pictures of sizes the names their sizes have."""
    uuids = iter([image.get("uuid") for image in images])
    for part in _image_parts(messages) if images else ():
        uuid = next(uuids)
        if uuid is not None:
            part["uuid"] = uuid


def _image_parts(messages: Any) -> Iterator[dict[str, Any]]:
    for message in messages:
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            yield from (p for p in message["content"] if isinstance(p, dict) and "image_url" in p)
