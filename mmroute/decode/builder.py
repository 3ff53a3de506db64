"""The old way to make a `StopSequenceDecoder`, kept for one release: see `StopConditions.of`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from mmroute.decode.stop import StopConditions, StopSequenceDecoder, StopString, StopToken
from mmroute.decode.stream import TokenDecoder
from mmroute.geometry import TokenIds

__all__ = ["StopSequenceDecoderBuilder"]


class StopSequenceDecoderBuilder:
    """Collects the arguments of `StopConditions` and of `StopSequenceDecoder`."""

    def __init__(self, tokenizer: TokenDecoder) -> None:
        warnings.warn(
            "StopSequenceDecoderBuilder goes with the next release: give StopSequenceDecoder its "
            "arguments, and StopConditions.of those of the request",
            DeprecationWarning,
            stacklevel=3,
        )
        self._tokenizer = tokenizer
        self._strings: tuple[StopString, ...] = ()
        self._tokens: tuple[StopToken, ...] = ()
        self._min_tokens = 0
        self._options: dict[str, Any] = {}

    def stop_strings(self, *texts: str, visible: bool = False) -> Self:
        """Add to `StopConditions.strings`."""
        self._strings += tuple(StopString(text, visible) for text in texts)
        return self

    def stop_tokens(self, *token_ids: int, visible: bool = False) -> Self:
        """Add to `StopConditions.tokens`."""
        self._tokens += tuple(StopToken(token_id, visible) for token_id in token_ids)
        return self

    def eos_token(self, token_id: int, *, visible: bool = False) -> Self:
        """Add the model's own end to `StopConditions.tokens`."""
        self._tokens += (StopToken(token_id, visible, is_eos=True),)
        return self

    def min_tokens(self, count: int) -> Self:
        """Set `StopConditions.min_tokens`."""
        self._min_tokens = count
        return self

    def prompt(self, token_ids: Sequence[int] | TokenIds) -> Self:
        """Set `prompt_token_ids`."""
        self._options["prompt_token_ids"] = token_ids
        return self

    def skip_special_tokens(self, skip: bool) -> Self:
        """Set `skip_special_tokens`."""
        self._options["skip_special_tokens"] = skip
        return self

    def conditions(self) -> StopConditions:
        """What was said so far about where the output ends."""
        return StopConditions(self._strings, self._tokens, self._min_tokens)

    def build(self) -> StopSequenceDecoder:
        """A decoder for one request; each call gives another."""
        return StopSequenceDecoder(self._tokenizer, self.conditions(), **self._options)
