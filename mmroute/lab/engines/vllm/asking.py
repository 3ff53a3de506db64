"""How vLLM is asked for one token of a request, and what it tells of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmroute.lab.parity.cases import Served
from mmroute.lab.parity.oracles.common import given, prompt_field
from mmroute.lab.parity.oracles.http import (
    RENDER_FIELDS,
    chat_body,
    prompt_body,
    token_ids_of,
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


def served(answer: Any) -> Served:
    """See `mmroute.lab.engines.Judge`. Completions have the prompt's token IDs in their choices."""
    holders = (answer, *(answer.get("choices") or ()))
    ids = next(filter(None, (holder.get("prompt_token_ids") for holder in holders)), None)
    usage = answer.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return Served(
        None,
        None if ids is None else np.array(token_ids_of(ids), np.uint32),
        usage.get("prompt_tokens"),
        details.get("cached_tokens"),
    )
