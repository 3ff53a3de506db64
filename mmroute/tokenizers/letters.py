"""How few tokens a text can have, by its letters alone: to refuse it before it is encoded.

No token stands for more letters than the one that has most of them. For all characters together
that says little: runs of a hundred spaces or dashes are one token, and texts are not made of them.
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
    """How many tokens a text has at least; see `Tokenizer.max_letters_per_token`."""
    raw = text.encode(errors="surrogatepass")
    ascii_only = raw.translate(None, _BEYOND_ASCII)
    letters = len(ascii_only) - len(ascii_only.translate(None, _LETTERS))
    composed = len(text) - len(ascii_only)
    return max(0, -(-(letters - composed) // max_letters_per_token))
