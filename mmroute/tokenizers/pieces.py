"""The texts of token IDs that read the same whatever stands beside them.

Most tokens of most tokenizers are such: their text can be looked up instead of decoded. The others
(parts of a character, bytes that only count together) have none here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

__all__ = ["PieceTexts", "Pieces", "joins_pieces"]

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_SEARCHED: Final = 4096  # IDs among which every byte-level vocabulary has its letters and its bytes


class _Decode(Protocol):
    def __call__(self, ids: Sequence[int], /, *, skip_special_tokens: bool) -> str: ...


class Pieces:
    """Looks up, and learns when first asked, what each token ID adds to a text.

    Only for a tokenizer whose decoder joins pieces: a token's text may depend on its neighbours
    because bytes make a character together, or because the text begins with it, and in no other
    way (`joins_pieces`). Every text is tried before it is used, between letters and beside a
    broken byte; a token that reads otherwise there has no text here. Safe to share between threads.

    Args:
        decode: the tokenizer's.
        max_token_id: the largest ID of the vocabulary; what is kept is bounded by it.
    """

    def __init__(self, decode: _Decode, max_token_id: int) -> None:
        self._decode = decode
        self._max_token_id = max_token_id
        self._texts: dict[bool, PieceTexts] = {}

    def texts(self, *, skip_special_tokens: bool) -> PieceTexts:
        """What is known, with or without the texts of special tokens."""
        known = self._texts.get(skip_special_tokens)
        if known is None:
            known = PieceTexts(
                lambda *ids: self._decode(ids, skip_special_tokens=skip_special_tokens),
                self._max_token_id,
            )
            self._texts[skip_special_tokens] = known
        return known


class PieceTexts(dict[int, str | None]):
    """Token ID -> its text, or None. Looking up an ID by ``[]`` learns it.

    A dictionary, so that a hit costs no more than that of one.

    Attributes:
        letter: a token that reads the same in all places, and its text. None if there is none
            such, or no part of a character to try it with; then no token has a text.
    """

    def __init__(self, text_of: Callable[..., str], max_token_id: int) -> None:
        super().__init__()
        self._text_of = text_of
        self._max_token_id = max_token_id
        searched = range(min(_SEARCHED, max_token_id + 1))
        self._broken = next((i for i in searched if text_of(i) == _REPLACEMENT), 0)
        self.letter = next(filter(None, map(self._as_letter, searched)), None)

    def _as_letter(self, token_id: int) -> tuple[int, str] | None:
        text, broken = self._text_of(token_id), self._broken
        around = self._text_of(token_id, broken, token_id, token_id)
        if text.isascii() and text.isalpha() and around == f"{text}{_REPLACEMENT}{text}{text}":
            return token_id, text
        return None

    def __missing__(self, token_id: int) -> str | None:
        if self.letter is None or not 0 <= token_id <= self._max_token_id:
            return None
        text = self._between(token_id)
        if text is not None and (_REPLACEMENT in text or not self._stays(token_id, text)):
            text = None
        self[int(token_id)] = text
        return text

    def _stays(self, token_id: int, text: str) -> bool:
        return (
            self._between(token_id, token_id) == text + text
            and self._between(token_id, self._broken) == text + _REPLACEMENT
            and self._between(self._broken, token_id) == _REPLACEMENT + text
        )

    def _between(self, *token_ids: int) -> str | None:
        """What the tokens read between two letters."""
        if self.letter is None:
            return None
        letter_id, letter = self.letter
        text = self._text_of(letter_id, *token_ids, letter_id)
        if len(text) < 2 * len(letter) or not (text.startswith(letter) and text.endswith(letter)):
            return None
        return text[len(letter) : len(text) - len(letter)]


def joins_pieces(decoder: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether the `decoder` of a tokenizer.json joins pieces, as `Pieces` needs it.

    >>> joins_pieces({"type": "ByteLevel"}), joins_pieces({"type": "WordPiece"})
    (True, False)
    """
    match decoder:
        case {"type": "ByteLevel" | "ByteFallback" | "Fuse"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(pattern)}}:
            return len(pattern) == 1  # a longer one could match across two tokens
        case {"type": "Strip", "start": 0 | 1, "stop": 0}:
            return True  # of the first token's text alone
        case {"type": "Sequence", "decoders": [_, *_] as parts}:
            return all(map(joins_pieces, parts))
    return False
