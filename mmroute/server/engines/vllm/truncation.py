"""Follows `truncate_prompt_tokens` where the result is exact.

vLLM cuts a list of token IDs as it is. A text is cut by the tokenizer, which keeps the tokens that
it adds. With a `truncation_side` vLLM may also cut the characters of the text. A prompt that needs
such a cut has no exact answer. Neither has one with items, or of a tokenizer that is not of the
library `tokenizers`.

The Rust frontend cuts the token IDs of a text as they are, and refuses a cut beside items.

Source: vLLM ``renderers/params.py`` (`TokenizeParams`), ``rust/src/text/src/truncation.rs``.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.errors import refused, unsupported_field
from mmroute.engines.vllm.bodies.fields import GenerationRequest
from mmroute.errors import Reason
from mmroute.server.api_errors import of_reason
from mmroute.server.engines.vllm.model import LoadedModel
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_ALL_THAT_FITS: Final = -1
_Ids = TypeVar("_Ids", list[int], TokenIds)


def truncated_ids(request: GenerationRequest, ids: _Ids, max_model_len: int) -> _Ids:
    """Token IDs, cut on the left unless the request asks for the right."""
    if request.truncate_prompt_tokens is None:
        return ids
    limit = _limit(request.truncate_prompt_tokens, max_model_len)
    if limit >= len(ids):
        return ids
    return ids[:limit] if request.truncation_side == "right" else ids[len(ids) - limit :]


def truncated_text(
    request: GenerationRequest, routing: Routing, loaded: LoadedModel, *, special_tokens: bool
) -> Routing:
    """The prompt of a text, cut as the tokenizer cuts it if the request asks for a cut."""
    length = request.truncate_prompt_tokens
    if length is None:
        return routing
    if length == 0:
        raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered")
    ids, limit = routing.token_ids, _limit(length, loaded.max_model_len)
    rust = loaded.chats.rust
    if rust and routing.placeholders:
        raise refused("truncate_prompt_tokens is refused with images", "truncate_prompt_tokens")
    if len(ids) <= limit:
        return routing
    if rust:
        return _with_ids(routing, truncated_ids(request, ids, loaded.max_model_len))
    added = _added(loaded.model.tokenizer) if special_tokens else (0, 0)
    known = loaded.model.tokenizer.offsets("a", add_special_tokens=False) is not None
    side_or_offsets = request.truncation_side is not None or request.return_token_offsets
    if side_or_offsets or routing.placeholders or not known or added is None or sum(added) > limit:
        raise unsupported_field(
            f"truncate_prompt_tokens would shorten this prompt of {len(ids)} tokens, which is "
            "not covered with truncation_side, token offsets or items, or for this tokenizer",
        )
    before = added[0]
    return _with_ids(routing, np.concatenate([ids[:before], ids[len(ids) - limit + before :]]))


def _with_ids(routing: Routing, ids: TokenIds) -> Routing:
    return Routing(
        lora=routing.lora,
        cache_salt=routing.cache_salt,
        hashing=routing.hashing,
        reads_cache=routing.reads_cache,
        _token_ids=ids,
    )


def _limit(length: int, max_model_len: int) -> int:
    """The number of tokens that are kept."""
    if length == _ALL_THAT_FITS:
        return max(0, max_model_len - 1)
    if length > max_model_len:
        raise refused(
            f"truncate_prompt_tokens={length} cannot be greater than max_model_len = "
            f"{max_model_len}. Please request a smaller truncation size.",
            "truncate_prompt_tokens",
            length,
        )
    return length


def _added(tokenizer: Tokenizer) -> tuple[int, int] | None:
    """The number of tokens that are added before and after a text; None if it is then another."""
    plain = tokenizer.encode("a", add_special_tokens=False).tolist()
    whole = tokenizer.encode("a", add_special_tokens=True).tolist()
    more = len(whole) - len(plain)
    starts = [i for i in range(more + 1) if whole[i : i + len(plain)] == plain]
    return (starts[0], more - starts[0]) if starts else None
