"""A lower bound on a text's token count, to refuse a long text before it is encoded."""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import numpy as np

# A kind is a set of bytes: each of its characters has one of them in UTF-8, which begins it.
_LETTERS, _SIGNS = string.ascii_letters.encode(), string.punctuation.encode()
# NFC leaves these as they are: ASCII digits, U+4000 to U+9FFF (ideographs), U+B000 to U+D7FF
# (Hangul; a syllable may take up a jamo) and, of the last kind, U+1F000 to U+1FFFF (emoji).
_DIGITS, _IDEOGRAPHS = string.digits.encode(), bytes(range(0xE4, 0xEA))
_HANGUL, _EMOJI = bytes(range(0xEB, 0xEE)), b"\xf0"
_KINDS: Final = (_LETTERS, _SIGNS, _DIGITS, _IDEOGRAPHS, _HANGUL, _EMOJI)
_EMOJI_BEGIN: Final = b"\xf0\x9f"
_BEYOND_ASCII: Final = bytes(range(0x80, 0x100))
_ANY_BYTES: Final = "\u4000\ub000\U0001f000"


class FewestTokens:
    """The bound of one tokenizer, which must keep every byte of a text in exactly one token."""

    def __init__(self, entries: Iterable[str]) -> None:
        lines = list(entries)
        joined = "\n".join(lines)
        if joined.count("\n") >= len(lines):  # an entry has one, which no byte-level one does
            joined = "\n".join([line.replace("\n", " ") for line in lines])
        self._entries: Final = joined.replace("\ufffd", _ANY_BYTES)

    def __call__(self, text: str) -> int:
        raw = text.encode(errors="surrogatepass")
        letters, signs, *others = (_count(raw, kind) for kind in _KINDS[:-1])
        others.append(raw.count(_EMOJI_BEGIN))
        in_ascii = len(raw) - _count(raw, _BEYOND_ASCII)
        composing = len(text) - in_ascii - sum(others[1:])
        counts = max(0, letters - composing), max(0, signs - composing), *others
        most, fullest = self._held
        alone = [count / held for count, held in zip(counts, most, strict=True)]
        return int(max(*alone, sum(alone) / fullest))

    @cached_property
    def _held(self) -> tuple[list[int], float]:
        """The most characters of each kind in one token, and the most that one holds of all."""
        forms = self._entries.encode(), self._entries.encode("latin-1", "ignore")
        counts = np.concatenate([np.array([_counts(form, k) for k in _KINDS]) for form in forms], 1)
        most = np.maximum(counts.max(axis=1), 1)
        return most.tolist(), max(1.0, float((counts / most[:, None]).sum(axis=0).max()))


def _count(raw: bytes, kind: bytes) -> int:
    return len(raw) - len(raw.translate(None, kind))


def _counts(lines: bytes, kind: bytes) -> list[int]:
    """The number of bytes of a kind in each line."""
    others = bytes(byte for byte in range(0x100) if byte not in b"\n" + kind)
    return list(map(len, lines.translate(None, others).split(b"\n")))
