"""Texts on which tokenizers differ, generated from code points. Every format meets all of them."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

LONG = 100_000  # characters

_SPACES = [" ", "\t", "\n", "\r", "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2000",
           "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
           "\ufeff"]  # fmt: skip
_BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x8e", b"\xed\xa0\x80", b"\xc0\x80", b"a\x80b",
           b"\xf8\x88\x80\x80\x80", b"\xe2\x28\xa1"]  # fmt: skip
_ZWJ, _VS16, _KEYCAP = "\u200d", "\ufe0f", "\u20e3"


def hostile_texts(special: Sequence[str] = ()) -> Iterator[str]:
    """The texts; with a tokenizer's special tokens in all surroundings."""
    yield from _fixed()
    for token in list(special)[:12]:
        yield f"{token}a{token} b {token}\n{token}{token}  {token}\té{token} "
        yield f"{token[:-1]} {token[1:]} {token.upper()} {token[:-1]}{token}{token[1:]}"
    if special:
        yield "".join(special[:64])
        yield " x ".join(special[:64])


@cache
def _fixed() -> tuple[str, ...]:
    return (
        "", *_whitespace(), *_scripts(), *_marks(), *_emoji(), *_broken(), *_words(), *_mixed(),
        *_long(),
    )  # fmt: skip


def _whitespace() -> Iterator[str]:
    for space in _SPACES:
        runs = [space * n for n in (1, 2, 3, 4, 7, 16, 65)]
        yield from (runs[0], runs[2], f"{space}x", f"x{space}", f"{space} {space}x")
        yield "a".join(runs) + "1".join(runs) + ".".join(runs)
        yield "".join(f"{space}{other}x" for other in _SPACES)


def _scripts() -> Iterator[str]:
    """Some characters of every block, in words, as neighbours of letters and digits."""
    # Python's frozen database, so that every Python version makes the same texts.
    category = unicodedata.ucd_3_2_0.category
    known = [
        chr(code)
        for code in [
            *range(0x80, 0x3100, 3),
            *range(0x3100, 0x20000, 53),
            *range(0x20000, 0x110000, 1999),
        ]
        if category(chr(code)) not in ("Cs", "Cn")
    ]
    newer = ((0x104B0, 0x104D4), (0x11400, 0x11440), (0x17000, 0x17020), (0x1E900, 0x1E944))
    known += [chr(code) for first, last in newer for code in range(first, last)]
    known += [chr(code) for code in (0x378, 0x5FF, 0xE000, 0x2FFFE, 0x10FFFD)]  # not assigned
    for at in range(0, len(known), 60):
        some = known[at : at + 60]
        yield "".join(some)
        yield " ".join(some)
        yield "".join(f"a{c} {c}{c}1{c}," for c in some)


def _marks() -> Iterator[str]:
    marks = [chr(code) for code in (0x301, 0x308, 0x323, 0x5B0, 0x64B, 0x93C, 0xE31, 0x20DD)]
    for base in "eEnकมא가\u1100中1 ":
        yield "".join(base + mark for mark in marks) + base + "".join(marks)
    precomposed = "".join(map(chr, range(0xC0, 0x250)))
    yield precomposed
    yield unicodedata.normalize("NFD", precomposed)
    hangul = "".join(map(chr, range(0xAC00, 0xAC40)))
    yield hangul
    yield unicodedata.normalize("NFD", hangul)
    yield "\u1e9b\u0323 \ufb01 \u212b \u2126 \u01c5 \u0130 \u0131 \u017f"


def _emoji() -> Iterator[str]:
    people = [chr(code) for code in (0x1F468, 0x1F469, 0x1F467, 0x1F466)]
    tones = [chr(code) for code in range(0x1F3FB, 0x1F400)]
    letters = [chr(code) for code in range(0x1F1E6, 0x1F200)]
    yield _ZWJ.join(people) + " " + _ZWJ.join(reversed(people))
    yield "".join(chr(0x1F44D) + tone for tone in tones)
    yield "".join(a + b for a, b in zip(letters, letters[5:], strict=False)) + letters[0]
    yield "".join(f"{digit}{_VS16}{_KEYCAP}" for digit in "0123456789#*")
    yield f"{chr(0x2764)}{_VS16} {chr(0x1F3F4)}{chr(0xE0067)}{chr(0xE007F)}"
    yield "".join(map(chr, range(0x1F300, 0x1F360)))


def _broken() -> Iterator[str]:
    """What is left of bytes that are no UTF-8."""
    for piece in _BROKEN:
        yield piece.decode(errors="replace")
        yield (b"ab " + piece + b"cd" + piece * 3).decode(errors="replace")
    yield "\x00\x01\x07\x1b[0m\x7f\x80\x9f\ufffe\uffff\U0010ffff"


def _words() -> Iterator[str]:
    yield "Hello world"
    yield " Hello  World "
    for tail in ("s", "t", "re", "ve", "m", "ll", "d", "x"):
        yield f"I'{tail} I'{tail.upper()} I'{tail.title()} '{tail} ' {tail} it\u2019{tail}"
    yield "I'\u017f"  # folds to 's
    yield "HTTPServer camelCase snake_case __init__ SCREAMING dŽ ǅungla ßS ﬁN ÉCOLE école"
    yield "1 12 123 1234 12345 1234567890 3.14 1,000,000 \u00bd\u00b2\u0663\u096a\u3007\u2167 0xFF"
    yield "def f(x):\n\treturn {x!r}  # \\n\r\n\r\n\n   if a != b && c || d->e::f<g>();\n"
    yield "!!!???...,,,;;;--- ((([[[{{{ \"\"\" ''' ``` $$$ %%% ^^^ &&& *** ~~~ ||| <<<>>>"
    yield "https://example.com/a/b?c=d%20e&f=g#h user@example.com C:\\path\\to"
    yield "\u2581\u2581Hello\u2581world\u2581 \u0120\u010a"  # how vocabularies write spaces
    yield "<0x0A> <0x41> [UNK] <unk> <s> </s> <|endoftext|> <|im_start|> [INST] <pad>"


def _mixed() -> Iterator[str]:
    """Anything beside anything."""
    chosen = random.Random(2026)
    pool = [text for text in (*_words(), *_emoji(), *_marks(), *_SPACES) if text]
    for _ in range(60):
        parts = []
        for _ in range(12):
            text = chosen.choice(pool)
            start = chosen.randrange(len(text))
            parts.append(text[start : start + chosen.randrange(1, 12)])
        yield "".join(parts)


def _long() -> Iterator[str]:
    mixed = "".join(_mixed())
    yield (mixed * (LONG // len(mixed) + 1))[:LONG]
    yield ("The quick brown fox. " * (LONG // 21 + 1))[:LONG]
    yield "\n" * 2_000 + " " * 2_000 + "a" * 2_000 + "1" * 2_000 + "中" * 2_000
