"""Tokenizers of one's own, as a user would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


class Reversed:
    """The code points, from the last to the first."""

    vocab_size = 0x110000
    special_tokens: Mapping[str, int] = {"\0": 0}

    def encode(self, text: str, *, add_special_tokens: bool) -> NDArray[np.uint32]:
        codes = [ord(c) for c in reversed(text)] + [0] * add_special_tokens
        return np.array(codes, np.uint32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) for i in reversed(ids) if i or not skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        return ord(token) if len(token) == 1 else None

    def token(self, token_id: int) -> str | None:
        return chr(token_id)

    def offsets(self, text: str, *, add_special_tokens: bool) -> None:
        """It has none."""


class Smallest:
    """All that is needed."""

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode()


class WithoutDecode:
    """Not a tokenizer yet."""

    def encode(self, text: str, *, add_special_tokens: bool) -> None: ...
