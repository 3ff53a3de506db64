"""Streams of tokenizers of every format: all pieces together are the text of all IDs."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import mistral_common
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import SMALL_MODELS, write_model
from small_vocabularies import write_ranks, write_vocab_and_merges

import mmroute
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.text import DecodeStream
from mmroute.text.loaded_tokenizer import LoadedTokenizer

V3: Final = (
    Path(mistral_common.__file__).parent / "data" / "mistral_instruct_tokenizer_240323.model.v3"
)
FORMATS: Final[dict[str, Callable[[Path], Path | str]]] = {
    "tokenizer.json of a known family": lambda d: write_model(
        SMALL_MODELS["small-qwen2.5-vl"](), d / "model"
    ),
    "vocab.json": lambda d: write_vocab_and_merges(d, {"tokenizer_class": "GPT2Tokenizer"}),
    "tiktoken": lambda d: write_ranks(d / "a.tiktoken"),
    "tekken": lambda _: EMBEDDED_MODEL,
}
# Byte fallback: a run of bytes is invalid as a whole, so a batch may take back what was given.
OF_SENTENCEPIECE: Final[dict[str, Callable[[Path], Path | str]]] = {
    "sentencepiece": lambda d: Path(shutil.copy(V3, d / "tokenizer.model")),
    "mistral sentencepiece": lambda _: V3,
}


LOOKED_UP: Final = ("tokenizer.json of a known family", "vocab.json", "tiktoken", "tekken")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedTokenizer]:
    """Each format, loaded once."""

    @functools.cache
    def load(name: str) -> LoadedTokenizer:
        directory = tmp_path_factory.mktemp("formats")
        return mmroute.load_tokenizer((FORMATS | OF_SENTENCEPIECE)[name](directory))

    return load


@pytest.mark.parametrize("name", [*FORMATS, *OF_SENTENCEPIECE])
def test_the_formats_that_are_looked_up_are_those_of_the_documentation(
    name: str, loaded: Callable[[str], LoadedTokenizer]
) -> None:
    pieces = loaded(name).pieces
    assert (pieces is not None) == (name in LOOKED_UP)
    assert pieces is None or pieces.texts(skip_special_tokens=True) is not None


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), skip=st.booleans())
def test_pieces_and_flush_are_the_batch_decode(
    name: str, data: st.DataObject, skip: bool, loaded: Callable[[str], LoadedTokenizer]
) -> None:
    tokenizer = loaded(name)
    some = st.integers(0, min(tokenizer.max_token_id, 2000))
    ids = data.draw(st.lists(some, max_size=30), "ids")
    text = tokenizer.decode(ids, skip_special_tokens=skip)
    stream = DecodeStream(tokenizer, skip_special_tokens=skip)
    pieces = [stream.step(token_id) for token_id in ids]
    assert "".join([*pieces, stream.flush()]) == text


@pytest.mark.parametrize("name", [*FORMATS, *OF_SENTENCEPIECE])
@given(text=st.text(max_size=40), cut=st.integers(0, 40))
def test_a_text_comes_back_behind_any_prompt(
    name: str, text: str, cut: int, loaded: Callable[[str], LoadedTokenizer]
) -> None:
    tokenizer = loaded(name)
    ids = tokenizer.encode(text).tolist()
    prompt, output = ids[:cut], ids[cut:]
    whole, begun = tokenizer.decode(ids), tokenizer.decode(prompt)
    stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=False)
    given_ = stream.step_batch(output) + stream.flush()
    if not begun.endswith("\N{REPLACEMENT CHARACTER}"):
        assert begun + given_ == whole
