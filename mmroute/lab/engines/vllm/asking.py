"""How vLLM is asked for one token of a request, and what it tells of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmroute.lab.parity.oracles.common import given, prompt_field
from mmroute.lab.parity.oracles.http import (
    RENDER_FIELDS,
    chat_body,
    prompt_body,
)


def generation(request: Mapping[str, Any], model: str) -> tuple[str, dict[str, Any]]:
    """See `mmroute.lab.engines.Judge`."""
    match prompt_field(request):
        case "messages":
            path, body = "/v1/chat/completions", chat_body(request)
        case name:
            path, body = "/v1/completions", prompt_body(request, name)
    if body.get("tools"):
        body["tool_choice"] = "none"  # no tool parser is asked for
    name = (request.get("lora") or {}).get("lora_name", model)
    body |= {"max_tokens": 1, "model": name, "return_token_ids": True}
    body |= given(request, "cache_salt", *RENDER_FIELDS)
    if request.get("reads_cache") is False:
        body["prompt_logprobs"] = 0
    return path, body
