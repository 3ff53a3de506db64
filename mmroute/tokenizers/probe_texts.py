"""Texts on which two encoders are compared, to see whether they give the same IDs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

_WORDS: Final = """Hello, world! It's a naïve test of we'll, I'D and SHE'S; don't "quote" (me)...
def f(x: int = 0xFF) -> list[str]:\n\treturn [f"{x!r}\\n" for _ in range(10_000)]  # a comment
{"key": [1, 2.50, -3e-7, null], "url": "https://example.com/a?b=c&d=%20#e"}
   indented by three\r\n\r\n\r\n\ttabs\t\tand   runs      of spaces \n \n  \n
1 12 123 1234 12345 1234567890 3.14159 1,000,000 ½ ² ٣ ४ 〇 Ⅷ 𝟘
snake_case camelCase PascalCase kebab-case SCREAMING_CASE a.b.c a/b/c a\\b\\c <b>bold</b> **x**
__init__ 中文没有空格。日本語のテキスト、한국어 텍스트. ภาษาไทยไม่มีช่องว่าง עברית العربية हिन्दी
தமிழ் ქართული 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ☺️ 1️⃣ \u200b\u200d\ufeff\u2028\u0085\x00\x07\x7f
e\u0301 \u1e9b\u0323 ﬁ Å Ω ǅ ß ſ İ ı"""
_SPACES: Final = " \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\ufeff"
_PUNCTUATION: Final = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~§±×…–—“”«»、。！？"
_LAST_OF_SMALL_BLOCKS: Final = 0x3000
_SMALL_STEP, _LARGE_STEP = 7, 211  # the steps through small and large blocks of characters
_LONGEST_RUN: Final = 5
_TOKENS_IN_CONTEXT: Final = 64
_CHUNK: Final = 40


def probe_texts(added: Sequence[str]) -> Iterator[str]:
    """Texts with all scripts, runs of spaces, numbers, punctuation, byte fallback, added tokens."""
    yield ""
    yield _WORDS
    yield from _WORDS.splitlines(keepends=True)
    yield unicodedata.normalize("NFD", _WORDS)
    yield _WORDS.upper()
    yield from _runs()
    yield from _all_scripts()
    yield from _with_added(added)


def _runs() -> Iterator[str]:
    for character in _SPACES:
        runs = [character * length for length in range(1, _LONGEST_RUN + 1)]
        yield "a".join(["", *runs, ""]) + "1".join(runs) + ".".join(runs)
        yield runs[-1]
        yield "".join(f"{character}{other}x" for other in _SPACES)
    for character in f"aA1éЖ中ก{_PUNCTUATION}":
        yield " ".join(character * length for length in (1, 2, 3, 4, 7, 16, 65))
        yield f"{character}\n{character * 2}\n\n{character} '{character}' {character}"


@cache
def _all_scripts() -> tuple[str, ...]:
    """Texts with some characters of every Unicode block: alone, in words, doubled, with marks."""
    chosen = [
        chr(code)
        for code in range(0x110000)
        if code % (_SMALL_STEP if code < _LAST_OF_SMALL_BLOCKS else _LARGE_STEP) == 0
        and unicodedata.category(chr(code)) not in ("Cs", "Cn")
    ]
    texts = []
    for at in range(0, len(chosen), _CHUNK):
        some = chosen[at : at + _CHUNK]
        texts.append("".join(some) + " ".join(some))
        texts.append("".join(f"x{c}\u0301{c}{c} {c}1" for c in some))
    return tuple(texts)


def _with_added(added: Sequence[str]) -> Iterator[str]:
    """Texts with each token, with some tokens in many surroundings, and with near misses."""
    for at in range(0, len(added), _CHUNK):
        some = added[at : at + _CHUNK]
        yield "".join(some)
        yield " and\n".join(some)
    step = max(1, len(added) // _TOKENS_IN_CONTEXT)
    for token in added[::step]:
        yield f"{token}a{token} b {token}\n{token}{token}  {token}\t1{token}é\u0301{token} "
        yield f"{token[:-1]} {token[1:]} {token.upper()} {token[:-1]}{token} {token}{token[1:]}"
        yield f" {token} user\nWhat is this?{token}\n{token}assistant\n"
