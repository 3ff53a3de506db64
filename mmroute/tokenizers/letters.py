"""A lower bound on a text's token count, by its letters: to refuse a long text before encoding it.

No token stands for more letters than the token with the most letters. Characters of all kinds would
give a weak bound: a run of a hundred spaces or dashes can be one token.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Final

LETTERS: Final = frozenset(string.ascii_letters)
_LETTERS: Final = string.ascii_letters.encode()
_WITHOUT_LETTERS: Final = str.maketrans("", "", string.ascii_letters)
_BEYOND_ASCII: Final = bytes(range(0x80, 0x100))


def most_letters(entries: Iterable[str]) -> int:
    """The most ASCII letters in one entry of a vocabulary."""
    most = 0
    for entry in entries:
        if len(entry) > most:
            most = max(most, len(entry) - len(entry.translate(_WITHOUT_LETTERS)))
    return most


def fewest_tokens(text: str, max_letters_per_token: int) -> int:
    """A lower bound on the number of a text's tokens; see `Tokenizer.max_letters_per_token`."""
    raw = text.encode(errors="surrogatepass")
    ascii_only = raw.translate(None, _BEYOND_ASCII)
    letters = len(ascii_only) - len(ascii_only.translate(None, _LETTERS))
    composed = len(text) - len(ascii_only)
    return max(0, -(-(letters - composed) // max_letters_per_token))
