"""A file that came before is known by all of its text, and by nothing less."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmroute import FastPaths, Normalizer
from mmroute.images.data_url import DecodedUrl, KnownFile, KnownFiles

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


def test_a_url_has_the_same_file_as_a_body() -> None:
    files = KnownFiles(1 << 20)
    url = f"data:image/png;base64,{_TEXTS[0].decode()}"
    assert files.of_url(url) is url
    known = find(files, _TEXTS[0])
    found = files.of_url(url)
    assert known is not None
    assert isinstance(found, DecodedUrl)
    assert found.images is known.images
    assert files.of_url(found) is found


def test_a_body_has_the_same_file_as_a_url() -> None:
    files, text = KnownFiles(1 << 20), _TEXTS[0].decode()
    first, kept = (files.of_url(f"data:image/png;base64,{text}") for _ in range(2))
    known = files.find(_TEXTS[0], slice(0, _CHARACTERS))
    assert not isinstance(first, DecodedUrl)
    assert isinstance(kept, DecodedUrl)
    assert known is not None
    assert (known.images, known.content) == (kept.images, kept.content)
    assert known.images is kept.images
    other = text[:6_000] + text[6_000:].replace(text[6_000], "-", 1)
    assert files.find(other.encode(), slice(0, _CHARACTERS)) is None
    assert not isinstance(files.of_url(f"data:image/png;base64,{other}"), DecodedUrl)


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png,{_TEXTS[0].decode()}",
        f"data:image/png;base64{_TEXTS[0].decode()}",
        f"data:{'x' * 128};base64,{_TEXTS[0].decode()}",
        f"data:image/png;base64,{_TEXTS[0].decode()}é",
        f"data:image/png;base64,{_TEXTS[0].decode()}\ud800",
        f"data:image/png;base64,{_TEXTS[0].decode()}\n",
        "data:image/png;base64,AAAA",
    ],
)
def test_other_urls_stay_as_they_are(url: str) -> None:
    files = KnownFiles(1 << 20)
    for _ in range(3):
        assert files.of_url(url) is url


def test_a_normalizer_answers_as_without(small_model: Callable[[str], Path]) -> None:
    directory = small_model("small-qwen3-vl")
    keeps = Normalizer.from_pretrained(directory)
    keeps_none = Normalizer.from_pretrained(directory, fast_paths=FastPaths(image_cache_bytes=0))
    file = io.BytesIO()
    Image.effect_noise((320, 200), 50).convert("RGB").save(file, "JPEG")
    for data in (file.getvalue(), file.getvalue()[:-2]):  # the other one is refused
        url = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
        part = {"type": "image_url", "image_url": {"url": url}}
        messages = [{"role": "user", "content": [part]}]
        wanted = keeps_none.normalize(messages=messages)
        for _ in range(3):
            found = keeps.normalize(messages=messages)
            assert found.reason == wanted.reason
            assert not found.exact or found.token_ids.tolist() == wanted.token_ids.tolist()
            assert not found.exact or found.identities == wanted.identities
    stats = keeps.stats().images
    assert stats is not None
    assert stats.hits == 2
    assert keeps_none.stats().images is None


def test_what_is_no_base64_is_kept_never() -> None:
    files = KnownFiles(1 << 20)
    text = _TEXTS[0][:-1] + b"!"
    assert files.find(text, slice(0, len(text))) is None
    for _ in range(2):
        with pytest.raises(ValueError, match="Non-base64"):
            files.find(text, slice(0, len(text)))
