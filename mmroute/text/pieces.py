"""A table of the texts that tokens add, for tokenizers whose decoder joins pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# Every byte-level vocabulary has letters and bytes among this many first IDs.
_SEARCHED_IDS: Final = 4096
# More tokens than this without a complete character are garbage, and are not remembered.
_MAX_HELD_TOKENS: Final = 8
# The limit of entries for parts of characters: some ten megabytes.
_MAX_ENTRIES: Final = 1 << 16


class _Decode(Protocol):
    def __call__(self, ids: Sequence[int], /, *, skip_special_tokens: bool) -> str: ...


class Pieces:
    """Looks up the text that a token adds, and learns it at the first lookup.

    Only for a tokenizer whose decoder joins pieces. There a token's text depends on its neighbours
    in two ways only: bytes make a character together, and the first token of a
    text may lose a space. Each text is checked by decoding the token between two letters before it
    is kept. Safe to share between threads.
    """

    def __init__(self, decode: _Decode, max_token_id: int) -> None:
        self._decode = decode
        self._max_token_id = max_token_id
        self._texts: dict[bool, PieceTexts | None] = {}

    def texts(self, *, skip_special_tokens: bool) -> PieceTexts | None:
        """The table, with or without special tokens; None if no letter can check tokens."""
        if skip_special_tokens not in self._texts:
            vocabulary = _Vocabulary(self._decode, self._max_token_id, skip_special_tokens)
            letter = vocabulary.find_letter()
            texts = None if letter is None else PieceTexts(vocabulary, letter, ())
            self._texts[skip_special_tokens] = texts
        return self._texts[skip_special_tokens]


class PieceTexts(dict[int, "str | PieceTexts | None"]):
    """The text that the next token adds, by its ID, after some tokens of an incomplete character.

    Looking up an ID by ``[]`` learns it. The value is the text that the token completes; or the
    table for the token after it, if the character is still incomplete; or None if the tokens must
    be decoded.

    It is a dictionary so that looking up a known ID costs no more than in a dictionary.
    """

    __slots__ = ("_held", "_vocabulary", "letter")

    def __init__(
        self, vocabulary: _Vocabulary, letter: tuple[int, str], held: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.letter = letter  # the ID and the text of a token that stands for all text before
        self._vocabulary = vocabulary
        self._held = held

    def __missing__(self, token_id: int) -> str | PieceTexts | None:
        vocabulary, held = self._vocabulary, (*self._held, int(token_id))
        if not 0 <= token_id <= vocabulary.max_token_id or len(held) > _MAX_HELD_TOKENS:
            return None
        letter_id, letter = self.letter
        text = vocabulary.text_of(letter_id, *held)
        piece: str | PieceTexts | None = None
        if text.endswith(_REPLACEMENT):
            piece = PieceTexts(vocabulary, self.letter, held)
        elif text.startswith(letter) and vocabulary.text_of(letter_id, *held, letter_id) == (
            text + letter
        ):
            piece = text[len(letter) :]
        if len(held) == 1 or vocabulary.may_keep():
            self[held[-1]] = piece
        return piece


class _Vocabulary:
    def __init__(self, decode: _Decode, max_token_id: int, skip_special_tokens: bool) -> None:
        self.max_token_id = max_token_id
        self._decode = decode
        self._skip = skip_special_tokens
        self._kept = 0

    def text_of(self, *token_ids: int) -> str:
        return self._decode(token_ids, skip_special_tokens=self._skip)

    def may_keep(self) -> bool:
        self._kept += 1
        return self._kept <= _MAX_ENTRIES

    def find_letter(self) -> tuple[int, str] | None:
        """A token of letters whose text stays the same beside itself and beside a broken byte."""
        searched = range(min(_SEARCHED_IDS, self.max_token_id + 1))
        broken = next((i for i in searched if self.text_of(i) == _REPLACEMENT), None)
        if broken is None:
            return None
        for token_id in searched:
            text = self.text_of(token_id)
            if text.isascii() and text.isalpha():
                around = self.text_of(token_id, broken, token_id, token_id)
                if around == f"{text}{_REPLACEMENT}{text}{text}":
                    return token_id, text
        return None


_OF_MODELS: Final[WeakKeyDictionary[Any, Pieces]] = WeakKeyDictionary()


def pieces_of(tokenizer: Any) -> Pieces | None:
    """The texts of a tokenizer's tokens, the same for all of its streams; None if not joined."""
    if not getattr(tokenizer, "joins_pieces", False):
        pieces: Pieces | None = getattr(tokenizer, "pieces", None)
        return pieces
    if tokenizer not in _OF_MODELS:
        _OF_MODELS[tokenizer] = Pieces(tokenizer.decode, tokenizer.max_token_id)
    return _OF_MODELS[tokenizer]
