"""What tokens add to a text, remembered, for tokenizers that join pieces.

Most tokens of most tokenizers read the same whatever stands beside them, and the parts of a
character make that character wherever they meet. So the text can be looked up, token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# IDs among which every byte-level vocabulary has letters and bytes.
_SEARCHED: Final = 4096
# Tokens of an incomplete character: more of them are garbage, and not worth remembering.
_DEEPEST: Final = 8
# Entries for parts of characters, all together: some ten megabytes.
_MOST_KEPT: Final = 1 << 16


class _Decode(Protocol):
    def __call__(self, ids: Sequence[int], /, *, skip_special_tokens: bool) -> str: ...


class Pieces:
    """Looks up what tokens add to a text, and learns it when first asked.

    Only for a tokenizer whose decoder joins pieces: a token's text may depend on its neighbours
    because bytes make a character together, or because the text begins with it, and in no other
    way (`joins_pieces`). Even so every text is tried between two letters before it is kept. Safe to
    share between threads.

    Args:
        decode: the tokenizer's.
        max_token_id: the largest ID of the vocabulary.
    """

    def __init__(self, decode: _Decode, max_token_id: int) -> None:
        self._decode = decode
        self._max_token_id = max_token_id
        self._texts: dict[bool, PieceTexts | None] = {}

    def texts(self, *, skip_special_tokens: bool) -> PieceTexts | None:
        """What is known, with or without the texts of special tokens.

        None if no letter is found to try tokens with.
        """
        if skip_special_tokens not in self._texts:
            vocabulary = _Vocabulary(self._decode, self._max_token_id, skip_special_tokens)
            letter = vocabulary.find_letter()
            texts = None if letter is None else PieceTexts(vocabulary, letter, ())
            self._texts[skip_special_tokens] = texts
        return self._texts[skip_special_tokens]


class PieceTexts(dict[int, "str | PieceTexts | None"]):
    """What each next token ID adds, behind a text and some tokens that are held.

    Looking up an ID by ``[]`` learns it. The answer is the text that it completes; or what is to be
    asked next, if nothing is complete yet; or None if it must be decoded.

    A dictionary, so that a known answer costs no more than that of one.

    Attributes:
        letter: a token to decode with in place of all text before, and its text.
    """

    __slots__ = ("_held", "_vocabulary", "letter")

    def __init__(
        self, vocabulary: _Vocabulary, letter: tuple[int, str], held: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.letter = letter
        self._vocabulary = vocabulary
        self._held = held

    def __missing__(self, token_id: int) -> str | PieceTexts | None:
        vocabulary, held = self._vocabulary, (*self._held, int(token_id))
        if not 0 <= token_id <= vocabulary.max_token_id or len(held) > _DEEPEST:
            return None
        letter_id, letter = self.letter
        text = vocabulary.text_of(letter_id, *held)
        found: str | PieceTexts | None = None
        if text.endswith(_REPLACEMENT):
            found = PieceTexts(vocabulary, self.letter, held)
        elif text.startswith(letter) and vocabulary.text_of(letter_id, *held, letter_id) == (
            text + letter
        ):
            found = text[len(letter) :]
        if len(held) == 1 or vocabulary.may_keep():
            self[held[-1]] = found
        return found


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
        return self._kept <= _MOST_KEPT

    def find_letter(self) -> tuple[int, str] | None:
        """A token of letters that reads the same beside others of it, and beside a broken byte.

        A byte that is a letter may not (SentencePiece's byte fallback decodes runs of bytes).
        """
        searched = range(min(_SEARCHED, self.max_token_id + 1))
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


def joins_pieces(decoder: Any) -> bool:
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
