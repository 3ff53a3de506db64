"""A file that came before is known by all of its text, and by nothing less."""

from __future__ import annotations

import base64
import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmroute.images.known_files import KnownFile, KnownFiles

_CHARACTERS: Final = 12_000
_ENTRY: Final = 512 + _CHARACTERS + 9_000
_TEXTS: Final = [base64.b64encode(random.Random(n).randbytes(9_000)) for n in range(3)]


def find(files: KnownFiles, text: bytes, before: bytes = b"ab") -> KnownFile | None:
    """What is known of a text between others, which is right whatever it is."""
    known = files.find(before + text + b'"}', slice(len(before), len(before) + len(text)))
    assert known is None or (known.text, known.content) == (text, base64.b64decode(text))
    return known


_ASKED: Final = st.lists(
    st.tuples(
        st.sampled_from(_TEXTS),
        st.none() | st.integers(0, _CHARACTERS - 1),
        st.integers(0, 9),
    ),
    max_size=30,
)


@given(_ASKED, st.sampled_from([0, 2_000, 2 * _ENTRY, 1 << 20]))
def test_texts_that_differ_in_one_character_are_told_apart(
    asked: list[tuple[bytes, int | None, int]], max_bytes: int
) -> None:
    files = KnownFiles(max_bytes)
    for text, at, shorter in asked:
        changed = bytearray(text[: len(text) - 4 * shorter])
        if at is not None and at < len(changed):
            changed[at] ^= 1  # of A and a, 4 and 5 ...
            if not chr(changed[at]).isalnum():
                changed[at] = ord("x")
        find(files, bytes(changed))
        assert files.stats().kept_bytes <= max_bytes


def test_a_file_is_kept_when_it_comes_again() -> None:
    files = KnownFiles(1 << 20)
    first, second, third = (find(files, _TEXTS[0], b"x" * n) for n in range(3))
    assert first is None
    assert second is third is not None
    stats = files.stats()
    assert (stats.hits, stats.misses, stats.entries, stats.reused) == (1, 2, 1, _CHARACTERS)
    assert stats.kept_bytes == _ENTRY


def test_what_was_not_used_for_longest_goes_first() -> None:
    files = KnownFiles(2 * _ENTRY + 512)
    for text in (_TEXTS[0], _TEXTS[1], _TEXTS[0], _TEXTS[1], _TEXTS[0], _TEXTS[2], _TEXTS[2]):
        find(files, text)
    hits = files.stats().hits
    find(files, _TEXTS[0])
    find(files, _TEXTS[2])
    assert files.stats().hits == hits + 2
    assert find(files, _TEXTS[1]) is None


def test_a_file_of_more_than_all_bytes_drops_nothing() -> None:
    files = KnownFiles(_ENTRY + 512)
    find(files, _TEXTS[0])
    known = find(files, _TEXTS[0])
    large = base64.b64encode(bytes(30_000))
    for _ in range(3):
        find(files, large)
    assert find(files, _TEXTS[0]) is known


def test_what_is_no_base64_is_kept_never() -> None:
    files = KnownFiles(1 << 20)
    text = _TEXTS[0][:-1] + b"!"
    assert files.find(text, slice(0, len(text))) is None
    for _ in range(2):
        with pytest.raises(ValueError, match="Non-base64"):
            files.find(text, slice(0, len(text)))
