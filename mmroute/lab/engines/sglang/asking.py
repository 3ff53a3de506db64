"""How SGLang is asked for one token of a request, and what it tells of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.lab.parity.cases import Served
from mmroute.lab.parity.oracles.common import given, prompt_field
from mmroute.lab.parity.oracles.http import told_by
from mmroute.lab.parity.oracles.pictures import data_url, with_pictures

_OF_CHATS: Final = (
    "tools", "chat_template_kwargs", "continue_final_message", "reasoning_effort",
)  # fmt: skip
_SHARED: Final = ("cache_salt",)


def generation(request: Mapping[str, Any], model: str) -> tuple[str, dict[str, Any]]:
    """See `mmroute.lab.engines.Judge`. Prompts with pictures go to ``/generate``, as only it can.

    The fields are those that a chat of SGLang has: mmroute ignores the others, as SGLang does.
    """
    name, shared = prompt_field(request), given(request, *_SHARED)
    adapter = (request.get("lora") or {}).get("lora_name")
    images, hashes = request.get("images"), request.get("mm_hashes")
    if name == "messages" and not hashes:
        messages = with_pictures(request["messages"], images)
        path, body = "/v1/chat/completions", {"messages": messages, **given(request, *_OF_CHATS)}
    elif images or hashes:
        field = "text" if name == "prompt" else "input_ids"
        body = {field: request[name], "sampling_params": {"max_new_tokens": 1}, **shared}
        body["image_data"] = [data_url(image["width"], image["height"]) for image in images or ()]
        return "/generate", body | given(request, "mm_hashes") | _with(lora_path=adapter)
    else:
        path, body = "/v1/completions", {"prompt": request[name]}
    body |= {"max_tokens": 1, "model": model, "return_token_ids": True, **shared}
    return path, body | _with(lora_path=adapter)


def served(answer: Any) -> Served:
    """See `mmroute.lab.engines.Judge`. ``/generate`` tells no token IDs of a prompt."""
    if "meta_info" in answer:
        told = answer["meta_info"]
        return Served(None, None, told.get("prompt_tokens"), told.get("cached_tokens"))
    return told_by(answer)


def _with(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
