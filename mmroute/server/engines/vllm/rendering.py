"""The answer of a render route: a prompt in the form in which the engine gets it.

Source: vLLM ``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

import contextlib
from typing import Any

from mmroute.answering.hash_forms import HashFields
from mmroute.answering.pipeline import with_adapter
from mmroute.answering.routing import Routing
from mmroute.answering.stages import Stage
from mmroute.engines.vllm.bodies.fields import GenerationRequest
from mmroute.engines.vllm.forwarding import hashes_and_ranges, mm_metadata
from mmroute.errors import InexactError, Reason
from mmroute.requests.request import Request
from mmroute.server.api_errors import of_reason
from mmroute.server.engines.vllm.model import Call, LoadedModel
from mmroute.server.engines.vllm.sampling import is_only_echo, sampling_params
from mmroute.token_ids import TokenIds, as_token_ids


def rendered(
    request: GenerationRequest, routing: Routing, call: Call, request_id: str
) -> dict[str, Any]:
    """The answer for one prompt, without the fields that only chats or only completions have.

    It is the body of ``/inference/v1/generate`` with its keys in vLLM's order, and behind them
    mmroute's own. With `Call.tokens_only` it has only `token_ids`, `features` and mmroute's own.
    """
    model, ids = call.model, routing.token_ids
    try:
        features = _features(routing, request.mm_payload)
        hashes = _hashes(routing, call)
    except InexactError as inexact:
        raise of_reason(inexact.reason, str(inexact)) from None
    # Chats by Harmony are not cut, but the length of an answer is that of a cut one.
    cut = request.truncate_prompt_tokens
    length = len(ids) if cut is None or cut < 0 else min(len(ids), cut)
    left = model.max_model_len - length
    if left < 1 and not is_only_echo(request):
        raise of_reason(Reason.PROMPT_TOO_LONG, "the context has no room for an answer")
    if call.tokens_only:
        part = {"token_ids": ids, "features": features, **hashes}
        return part if routing.reads_cache else {**part, "reads_cache": False}
    options = request.stream_options if request.stream else None
    return {
        "request_id": request_id,
        "token_ids": ids,
        "token_offsets": None,
        "features": features,
        "content_parts": None,
        "sampling_params": sampling_params(request, model.defaults, left),
        "model": request.model,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": request.return_token_ids,
        "output_mode": request.output_mode,
        "parse_context": None,
        "stream": bool(request.stream),
        "stream_options": None if options is None else options.model_dump(),
        "cache_salt": request.cache_salt,
        "priority": request.priority,
        "kv_transfer_params": request.kv_transfer_params or None,
        "ec_transfer_params": request.ec_transfer_params or None,
        **hashes,
    }


def _features(routing: Routing, mm_payload: str) -> dict[str, Any] | None:
    """The hashes, ranges and metadata of the items; None if there are no items."""
    if not routing.placeholders:
        return None
    hashes, ranges = hashes_and_ranges(routing)
    metadata = None
    if mm_payload == "tensors":
        with contextlib.suppress(InexactError):
            metadata = mm_metadata(routing)
    return {
        "mm_hashes": hashes,
        "mm_placeholders": ranges,
        "kwargs_data": None,
        "mm_metadata": metadata,
    }


def request_id_of(prefix: str, request: GenerationRequest, call: Call) -> str:
    """The ID in the header ``X-Request-Id``, or else in the body, or else a new one.

    Empty for an answer that has none.
    """
    if call.tokens_only:
        return ""
    return f"{prefix}-{call.request_id or request.request_id or call.own_id()}"


def route_ids(model: LoadedModel, request: GenerationRequest, ids: list[int] | TokenIds) -> Routing:
    """The routing of a prompt that consists of these token IDs."""
    if len(ids) > model.max_model_len:
        message = f"{len(ids)} tokens do not fit the context of {model.max_model_len}"
        raise of_reason(Reason.PROMPT_TOO_LONG, message)
    return Routing(
        lora=with_adapter(model.model, Request(model=request.model)).lora,
        cache_salt=request.cache_salt,
        hashing=model.model.hashing,
        reads_cache=request.reads_cache and model.model.hashing.settings.keeps_blocks,
        _token_ids=as_token_ids(ids) if isinstance(ids, list) else ids,
    )


def _hashes(routing: Routing, call: Call) -> HashFields:
    if call.blocks is None:
        return {}
    watch = call.model.normalizer.watch
    if watch is not None:
        watch.resume()
    hashes = call.blocks.of(routing)
    if watch is not None:
        watch.lap(Stage.HASH)
    return hashes
