"""The bodies of the routes' answers, with their keys in vLLM's order.

Source: vLLM ``entrypoints/scale_out/token_in_token_out/protocol.py`` (`GenerateRequest`,
`MultiModalFeatures`, `ParseContext`), ``entrypoints/serve/tokenize/protocol.py``,
``entrypoints/anthropic/protocol.py`` and ``entrypoints/serve/engine/protocol.py``
(`ErrorResponse`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.forwarding import hashes_and_ranges, mm_metadata
from mmroute.errors import InexactError

_Integers: TypeAlias = Annotated[
    Any, WithJsonSchema({"items": {"type": "integer"}, "type": "array"})
]
"""An array of numpy, which is written as a list of integers."""
_Booleans: TypeAlias = Annotated[
    Any, WithJsonSchema({"items": {"type": "boolean"}, "type": "array"})
]


class TokenizeResponse(TypedDict):
    """The token IDs of a prompt, and with `return_token_strs` the vocabulary entry of each."""

    count: int
    max_model_len: int
    tokens: _Integers
    token_strs: list[str] | None


class DetokenizeResponse(TypedDict):
    """The text of token IDs."""

    prompt: str


class ContextManagement(TypedDict):
    """The number of tokens before context management, which vLLM does not do."""

    original_input_tokens: int


class AnthropicCountTokensResponse(TypedDict):
    """The number of tokens of a request of the Anthropic Messages API."""

    input_tokens: int
    context_management: ContextManagement


class InputTokens(TypedDict):
    """The number of tokens of a request of the OpenAI Responses API, as OpenAI's server answers."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class PlaceholderRange(TypedDict):
    """The range of an item. `is_embed` marks the positions that receive features, if not all do."""

    offset: int
    length: int
    is_embed: NotRequired[_Booleans]


class Features(TypedDict):
    """The hashes, ranges and metadata of the items, without pixels."""

    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[PlaceholderRange]]
    kwargs_data: None
    mm_metadata: dict[str, list[str | None]] | None


class GenerateRequest(TypedDict):
    """A rendered prompt: the body of ``/inference/v1/generate``.

    From `block_hashes` on the keys are mmroute's own.
    """

    request_id: str
    token_ids: _Integers
    token_offsets: list[tuple[int, int]] | None
    features: Features | None
    content_parts: None
    sampling_params: dict[str, Any] | None
    model: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: dict[str, Any] | None
    return_token_ids: bool | None
    output_mode: str
    parse_context: dict[str, Any] | None
    stream: bool
    stream_options: dict[str, Any] | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
    block_hashes: NotRequired[list[str] | list[int]]
    local_hashes: NotRequired[list[int]]
    sequence_hashes: NotRequired[list[int]]
    reads_cache: NotRequired[bool]
    inexact: NotRequired[dict[str, str]]


def features_of(routing: Routing, mm_payload: str) -> Features | None:
    """The hashes and ranges of the items, by modality and position; None if there are no items."""
    if not routing.placeholders:
        return None
    hashes, ranges = hashes_and_ranges(routing)
    return {
        "mm_hashes": hashes,
        "mm_placeholders": ranges,
        "kwargs_data": None,
        "mm_metadata": _metadata(routing) if mm_payload == "tensors" else None,
    }


def _metadata(routing: Routing) -> dict[str, list[str | None]] | None:
    try:
        return mm_metadata(routing)
    except InexactError:
        return None
