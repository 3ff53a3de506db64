"""``tekken.json`` by mistral-common, whose vocabulary becomes texts only when somebody asks."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.tokens.tokenizers import mistral
from mistral_common.tokens.tokenizers.tekken import Tekkenizer


class Tekken(Tekkenizer):
    """mistral-common's tokenizer, without the texts of its tokens, which take 0.3 s to make."""

    def id_to_piece(self, token_id: int) -> str:
        return super().id_to_piece(token_id) if "_vocab" in vars(self) else ""

    def vocab(self) -> list[str]:
        return self._spelled

    @cached_property
    def _spelled(self) -> list[str]:
        return [self.id_to_piece(token_id) for token_id in range(self.n_words)]


def load_chat_tokenizer(path: Path) -> mistral.MistralTokenizer[Any, Any, Any, Any, Any]:
    """Load one of Mistral's tokenizer files with its encoder of chats."""
    load = mistral.MistralTokenizer.from_file.__func__  # type: ignore[attr-defined]  # a classmethod
    # The function names its class of tokenizers. Replaced in its module, it would be everybody's.
    with_ours = FunctionType(load.__code__, {**load.__globals__, "Tekkenizer": Tekken})
    tokenizer: mistral.MistralTokenizer[Any, Any, Any, Any, Any] = with_ours(
        mistral.MistralTokenizer, str(path), ValidationMode.test
    )
    return tokenizer
