"""`truncate_prompt_tokens`, where it can be followed exactly.

Source: vLLM 0.33.0 ``renderers/params.py`` (`TokenizeParams`). Token IDs are cut as they are.
Text is cut by the tokenizer, around the tokens it adds: there only a prompt that needs no cutting
has an exact answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mmroute.errors import Reason
from mmroute.server.errors import bad_request, of_reason
from mmroute.server.loading import LoadedModel
from mmroute.server.protocol import RenderRequest

__all__ = ["Truncation", "truncation_of"]

_ALL_THAT_FITS: Final = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a prompt is shortened.

    Attributes:
        length: tokens that stay; -1 for as many as the context takes.
        keeps_end: whether they are the last ones.
    """

    length: int
    keeps_end: bool

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
        return ids[len(ids) - length :] if self.keeps_end else ids[:length]

    def check_untouched(self, loaded: LoadedModel, length: int) -> None:
        """Refuse to guess what the tokenizer would cut from a text.

        Raises:
            ApiError: 422 `unsupported_field`; 400.
        """
        if self.length == 0:
            raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered", model=loaded.name)
        if length > self.limit(loaded.max_model_len):
            raise of_reason(
                Reason.UNSUPPORTED_FIELD,
                f"truncate_prompt_tokens would shorten this prompt of {length} tokens, which is "
                "covered only for prompts of token IDs",
                model=loaded.name,
            )


def truncation_of(request: RenderRequest) -> Truncation | None:
    """The truncation a request asks for; None for none."""
    length = request.truncate_prompt_tokens
    if length is None:
        return None
    return Truncation(length, keeps_end=request.truncation_side != "right")
