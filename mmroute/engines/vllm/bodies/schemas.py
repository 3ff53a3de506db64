"""The schema of the bodies of each of vLLM's routes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import create_model

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.completion import CompletionRequest
from mmroute.engines.vllm.bodies.messages import (
    AnthropicCountTokensRequest,
    AnthropicMessagesRequest,
)
from mmroute.engines.vllm.bodies.releases import Release, differences
from mmroute.engines.vllm.bodies.responses import ResponsesRequest
from mmroute.engines.vllm.bodies.rust_fields import RUST_FIELDS
from mmroute.engines.vllm.bodies.tokenization import DetokenizeRequest, TokenizeRequest
from mmroute.engines.vllm.bodies.validation import Schema

BODIES: Final[Mapping[str, Any]] = {
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/v1/chat/completions/render": ChatCompletionRequest,
    "/v1/completions/render": CompletionRequest,
    "/v1/messages/render": AnthropicMessagesRequest,
    "/v1/messages/count_tokens": AnthropicCountTokensRequest,
    "/v1/responses/render": ResponsesRequest,
}
"""Path of vLLM's route -> the class of its bodies, or several."""

_CHECKS_SALTS: Final = (0, 33)


@cache
def schema_of(path: str, release: Release, strict: bool = False, kind: Any = None) -> Schema[Any]:
    """The schema for the bodies of a route; `strict` is of the Rust frontend."""
    kind = kind or BODIES[path]
    unknown, refused, changed = differences(path, release)
    lenient = frozenset[str]()
    if strict:
        # An empty text may have a token; earlier releases look at no character of a salt.
        lenient = frozenset({"prompt"} if release >= _CHECKS_SALTS else {"prompt", "cache_salt"})
        for name, given in RUST_FIELDS.get(path, {}).items():
            changed[name] = (given, kind.model_fields[name].default)
    if changed:
        kind = create_model(kind.__name__, __base__=kind, **changed)
    return Schema(kind, unknown, refused, lenient)
