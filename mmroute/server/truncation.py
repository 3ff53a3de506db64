"""`truncate_prompt_tokens`, where it can be followed exactly.

Source: vLLM 0.33.0 ``renderers/params.py`` (`TokenizeParams`). Token IDs are cut as they are. Text
is cut by the tokenizer, which leaves the tokens that it adds. With a side, vLLM may cut the text
before that, by its characters: there only a prompt that needs no cutting has an exact answer, as
with items and with tokenizers that are not those of the library tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.errors import Reason
from mmroute.routing import Routing
from mmroute.server.errors import bad_request, of_reason
from mmroute.server.loading import LoadedModel
from mmroute.server.protocol import ChatCompletionRequest, CompletionRequest, RenderRequest
from mmroute.tokenizers import Tokenizer

__all__ = ["Truncation", "truncation_of"]

_ALL_THAT_FITS: Final = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a prompt is shortened.

    Attributes:
        length: tokens that stay; -1 for as many as the context takes.
        side: that is cut, ``left`` or ``right``; None for the tokenizer's own, which is left.
    """

    length: int
    side: str | None

    def limit(self, max_model_len: int) -> int:
        """Tokens that stay.

        Raises:
            ApiError: 400: more than the context takes.
        """
        if self.length == _ALL_THAT_FITS:
            return max(0, max_model_len - 1)
        if self.length > max_model_len:
            raise bad_request(
                f"truncate_prompt_tokens={self.length} cannot be greater than max_model_len = "
                f"{max_model_len}. Please request a smaller truncation size.",
                "truncate_prompt_tokens",
                self.length,
            )
        return self.length

    def of_ids(self, ids: list[int], max_model_len: int) -> list[int]:
        """Token IDs, cut.

        Raises:
            ApiError: 400.
        """
        length = self.limit(max_model_len)
        if length >= len(ids):
            return ids
        return ids[:length] if self.side == "right" else ids[len(ids) - length :]

    def of_text(
        self,
        loaded: LoadedModel,
        routing: Routing,
        request: ChatCompletionRequest | CompletionRequest,
    ) -> Routing:
        """The prompt of a text, cut as the tokenizer cuts it.

        Raises:
            ApiError: 422 `unsupported_field`; 400.
        """
        if self.length == 0:
            raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered", model=loaded.name)
        ids, limit = routing.token_ids, self.limit(loaded.max_model_len)
        if len(ids) <= limit:
            return routing
        specials = request.add_special_tokens
        before, after = _added(loaded.model.tokenizer) if specials else (0, 0)
        kept = limit - before
        known = loaded.model.tokenizer.offsets("a", add_special_tokens=False) is not None
        asked = self.side is not None or request.return_token_offsets
        if asked or routing.placeholders or kept < after or not known:
            raise of_reason(
                Reason.UNSUPPORTED_FIELD,
                f"truncate_prompt_tokens would shorten this prompt of {len(ids)} tokens, which is "
                "not covered with truncation_side, token offsets or items, or for this tokenizer",
                model=loaded.name,
            )
        return Routing(
            lora=routing.lora,
            cache_salt=routing.cache_salt,
            hashing=routing.hashing,
            _token_ids=np.concatenate([ids[:before], ids[len(ids) - kept :]]),
        )


def _added(tokenizer: Tokenizer) -> tuple[int, int]:
    """How many tokens the tokenizer adds before and behind a text."""
    plain = tokenizer.encode("a", add_special_tokens=False).tolist()
    whole = tokenizer.encode("a", add_special_tokens=True).tolist()
    starts = [i for i in range(len(whole)) if whole[i : i + len(plain)] == plain]
    return starts[0], len(whole) - starts[0] - len(plain)


def truncation_of(request: RenderRequest) -> Truncation | None:
    """The truncation a request asks for; None for none."""
    length = request.truncate_prompt_tokens
    if length is None:
        return None
    return Truncation(length, request.truncation_side)
