"""Behind which tokens a text may be cut: those behind which it has the IDs of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_helpers import (
    ALPHABET,
    backend_of,
    boundaries_of,
    encoded,
    plainly,
    prefixes_from,
    reusing,
    tiny_tokenizer,
    token_id,
)
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoders import ReferenceEncoder, may_be_cut


@pytest.fixture(scope="module", autouse=True)
def short_texts_are_known() -> Iterator[None]:
    with prefixes_from(8):
        yield


def token(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, **{"normalized": False, **flags})


def first_of_text() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(prepend_scheme="first", split=False)


# A tokenizer, the token of it behind which texts may not be cut, and two texts of which the second
# has other IDs if it is cut there.
WRONG_CUTS: Final[dict[str, tuple[tokenizers.Tokenizer, str, str, str]]] = {
    "strips what is behind it": (
        tiny_tokenizer([token("<b>", rstrip=True)]), "<b>", "abababab<b>a", "abababab<b>  a",
    ),
    "only where no letter follows": (
        tiny_tokenizer([token("ba", single_word=True)]), "ba", "aaaaaaa ba a", "aaaaaaa bab",
    ),
    "longer with what follows": (
        tiny_tokenizer([token("<b>"), token("<b>ab")]), "<b>", "abababab<b>ba", "abababab<b>ab",
    ),
    "looked back at by a token that stands alone": (
        tiny_tokenizer([token("<a"), token("<b>", single_word=True)]),
        "<a", "abababab<a b", "abababab<a<b>",
    ),
    "another place than the start": (
        tiny_tokenizer([token("<b>")], pre_tokenizer=first_of_text()),
        "<b>", "abababab<b>a", "abababab<b>b",
    ),
    "another place, in one of several steps": (
        tiny_tokenizer(
            [token("<b>")],
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Digits(), first_of_text()]),
        ),
        "<b>", "abababab<b>a", "abababab<b>b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_CUTS)
def test_no_text_is_cut_where_that_would_give_other_ids(case: str) -> None:
    tokenizer, text, first, second = WRONG_CUTS[case]
    forced, _ = reusing(tokenizer, {token_id(tokenizer, text): text})

    encoded(forced, first)
    assert encoded(forced, second) != plainly(tokenizer, second), "no reason to refuse it"
    assert text not in boundaries_of(tokenizer).values()


# The same, of tokens whose text is also where their ID is not, or the other way round.
MISPLACED: Final[dict[str, tuple[tokenizers.Tokenizer, str, str, str]]] = {
    "written in another way": (
        tiny_tokenizer([token("<b>", normalized=True)], normalizer=normalizers.Lowercase()),
        "<b>", "abababab<b>a<B>a", "abababab<b>a<B>ab",
    ),
    "inside another token": (
        tiny_tokenizer([token("<b>"), token("a<b>a")]), "<b>", "aa<b>abb<b>", "aa<b>abb<b>ab",
    ),
    "begun by the end of another token": (
        tiny_tokenizer([token("<b>"), token("<a><b")]), "<b>", "<a><b>ab<b>", "<a><b>ab<b>ab",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISPLACED)
def test_no_text_is_kept_whose_boundaries_are_not_where_its_ids_say(case: str) -> None:
    tokenizer, text, first, second = MISPLACED[case]
    assert text not in boundaries_of(tokenizer).values()
    forced, _ = reusing(tokenizer, {token_id(tokenizer, text): text})
    for each in (first, second):
        assert encoded(forced, each) == plainly(tokenizer, each)
    stats = forced.stats().reuse
    assert stats is not None
    assert stats.entries == 0


@pytest.mark.parametrize(
    ("tokens", "left"),
    [
        ([token("<b>"), token("<a>", lstrip=True)], {"<b>"}),
        ([token("<b>"), token("<>a<>")], {"<b>"}),  # overlaps itself
        ([token("<b>"), token("<a b>"), token("<a>\n"), token("\u3000")], {"<b>"}),
        ([token("<a>"), token("<b>"), token("<aa>", special=True)], {"<a>", "<b>", "<aa>"}),
    ],
)
def test_boundary_tokens(tokens: list[AddedToken], left: set[str]) -> None:
    tokenizer = tiny_tokenizer(tokens)
    boundaries = boundaries_of(tokenizer)
    assert set(boundaries.values()) == left
    assert all(tokenizer.token_to_id(text) == number for number, text in boundaries.items())


def test_nothing_is_kept_of_what_is_never_the_same_twice() -> None:
    assert boundaries_of(tiny_tokenizer([token("<b>")], dropout=0.5)) == {}
    assert boundaries_of(tiny_tokenizer([token("<b>")], dropout=0.0)) != {}


def check_one_after_the_other(tokenizer: tokenizers.Tokenizer, texts: tuple[str, ...]) -> None:
    reuse, _ = reusing(tokenizer)
    for text in texts:
        assert encoded(reuse, text) == plainly(tokenizer, text)


def test_the_unknown_token_has_its_id_for_other_texts_too() -> None:
    vocabulary = {"a": 0, "b": 1, "<b>": 2}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<b>"))
    tokenizer.add_tokens([token("<b>"), token("<a>")])
    texts = "ab<b>ab<a>ab", "abZab<b>ab<a>Zab", "abZab<b>ab<a>Zabba"
    check_one_after_the_other(tokenizer, texts)


def test_a_token_that_other_texts_are_normalized_to_has_its_id_for_them_too() -> None:
    tokenizer = tiny_tokenizer([token("ab")], normalizer=normalizers.Lowercase())
    assert "ab" in tokenizer.get_vocab(with_added_tokens=False)
    check_one_after_the_other(tokenizer, ("bbbbabbbbAB", "bbbbabbbbABb", "bbbbABbbabb"))


flags = st.fixed_dictionaries(
    dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), st.booleans())
)
# Most without flags, else hardly any tokenizer would have a boundary.
added_tokens = st.builds(
    lambda text, flags: token(text, **flags),
    st.text("<>ab ", min_size=1, max_size=4).filter(str.strip),
    st.just({}) | flags,
)
tiny_tokenizers = st.builds(
    lambda added, normalizer, scheme: tiny_tokenizer(
        added,
        normalizer=normalizer,
        pre_tokenizer=scheme and pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False),
    ),
    st.lists(added_tokens, min_size=1, max_size=4),
    st.sampled_from([None, normalizers.Lowercase(), normalizers.Strip(), normalizers.Prepend("a")]),
    st.sampled_from([None, None, "always", "never", "first"]),
)


@given(tiny_tokenizers, st.data())
@settings(max_examples=20)
def test_boundaries_hold_for_any_added_tokens(
    tokenizer: tokenizers.Tokenizer, data: st.DataObject
) -> None:
    reuse, _ = reusing(tokenizer)
    tokens = [known.content for known in tokenizer.get_added_tokens_decoder().values()]
    pieces = st.one_of(st.sampled_from(tokens), st.text(ALPHABET, max_size=3))
    texts = st.lists(pieces, min_size=3, max_size=10).map("".join)
    start = data.draw(texts)
    for end in data.draw(st.lists(texts, min_size=2, max_size=5)):
        assert encoded(reuse, start + end) == plainly(tokenizer, start + end)


# The last check, on the encoder that will be used


def test_an_encoder_that_asks_for_the_place_may_not_be_cut() -> None:
    tokenizer, text, _, _ = WRONG_CUTS["another place than the start"]
    boundaries = {token_id(tokenizer, text): text}
    assert not may_be_cut(ReferenceEncoder(tokenizer, ""), boundaries)


def test_an_encoder_that_looks_beyond_a_boundary_may_not_be_cut(
    small_model: Callable[[str], Path],
) -> None:
    tokenizer = backend_of(small_model("small-qwen2-vl"))

    class LooksBack(ReferenceEncoder):
        """The first space behind a boundary has another ID in the middle of a text."""

        def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
            text = text.replace("<|im_end|> ", "<|im_end|>\t")
            return super().encode(text, add_special_tokens=add_special_tokens)

        def stats(self) -> EncoderStats:
            return EncoderStats("looks back", "by choice")

    boundaries = {token_id(tokenizer, "<|im_end|>"): "<|im_end|>"}
    assert may_be_cut(ReferenceEncoder(tokenizer, ""), boundaries)
    assert not may_be_cut(LooksBack(tokenizer, ""), boundaries)
