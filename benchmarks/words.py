"""Texts that no cache has as a whole: English words, or words that do not exist.

Encoders cache words. A text of common words is encoded mostly from that cache, like prose in
production. A text of new words is encoded without it, which is the worst case.
"""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path
from typing import Final

_SYLLABLES: Final = """ba be bi bo bu ca ce co cu da de di do du fa fe fi fo ga ge go ha he hi
ho ja ka ke ki la le li lo lu ma me mi mo mu na ne ni no nu pa pe pi po ra re ri ro ru sa se si
so su ta te ti to tu va ve vi vo wa we za ze zo"""
_SENTENCE: Final = 12  # words
_SYLLABLES_OF_A_WORD: Final = 4
# Three paragraphs: the most common words in their order, then nouns, then verbs.
_LISTS: Final = Path(__file__).with_name("words.txt")


def _with_endings(words: str, *endings: str) -> list[str]:
    """Every word with every ending; an e before a vowel is dropped."""
    forms = []
    for word in words.split():
        for ending in endings:
            stem = word[:-1] if ending[:1] in ("e", "i") and word.endswith("e") else word
            forms.append(stem + ending)
    return forms


def _ranked() -> list[str]:
    """All words: function words first, the others mixed, so that no kind of word is rare."""
    common, nouns, verbs = _LISTS.read_text(encoding="utf-8").split("\n\n")
    content = [*_with_endings(nouns, "", "s"), *_with_endings(verbs, "", "s", "ed", "ing")]
    random.Random(0).shuffle(content)
    return list(dict.fromkeys([*common.split(), *content]))


_WORDS: Final = _ranked()
# The k-th most common word of a language is about 1/k as common as the first.
_WEIGHTS: Final = list(accumulate(1 / (rank + 3) for rank in range(len(_WORDS))))


def english(chooser: random.Random, count: int) -> str:
    """Sentences with `count` words in all, which are common and rare as in English.

    >>> english(random.Random(0), 6).count(" ")
    5
    """
    words = chooser.choices(_WORDS, cum_weights=_WEIGHTS, k=count)
    for start in range(0, count, _SENTENCE):
        words[start] = words[start].capitalize()
        end = min(start + _SENTENCE, count) - 1
        words[end] += "."
    return " ".join(words)


def unseen(chooser: random.Random, count: int) -> str:
    """A text of `count` words, hardly any of which occurs twice."""
    parts = chooser.choices(_SYLLABLES.split(), k=count * _SYLLABLES_OF_A_WORD)
    step = _SYLLABLES_OF_A_WORD
    return " ".join("".join(parts[at : at + step]) for at in range(0, len(parts), step))
