"""A cache of whole texts gives the encoder's own token IDs, and keeps to its size."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mistral_common
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from mmroute import FastPaths, Normalizer
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.tokenizers.formats.mistral_chat import KnownTexts, MistralChatEncoder


class Counting:
    """Encodes to code points, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, s: str, bos: bool, eos: bool) -> list[int]:
        self.calls += 1
        return [1] * bos + list(map(ord, s)) + [2] * eos


TEXTS = st.sampled_from(["a" * 63, "a" * 64, "b" * 64, "\ud800" * 70, "long " * 400, ""])


@given(
    st.lists(st.tuples(TEXTS, st.booleans(), st.booleans())), st.sampled_from([1, 2000, 1 << 20])
)
def test_the_ids_are_the_encoders(asked: list[tuple[str, bool, bool]], max_bytes: int) -> None:
    cached = KnownTexts(Counting(), max_bytes)
    for each in asked:
        ids = cached(*each)
        assert ids == Counting()(*each)
        ids.append(7)  # as mistral-common does with what it gets
        assert cached.stats().kept_bytes <= max_bytes


def test_a_text_is_encoded_once() -> None:
    encode = Counting()
    cached = KnownTexts(encode, 1 << 20)
    for _ in range(3):
        cached("x" * 100, False, False)
    cached("x" * 100, True, False)
    assert encode.calls == 2
    assert (cached.stats().hits, cached.stats().misses, cached.stats().reused) == (2, 2, 200)


@pytest.mark.parametrize("text_cache_bytes", [0, 1 << 20])
def test_a_tekken_looks_for_no_special_tokens_and_gives_the_same_ids(
    text_cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
    reference: Any = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
    rng = random.Random(5)
    characters = "abc def\n\t0123é你🙂\ud800[INST]</s><|endoftext|>"
    texts = ["".join(rng.choices(characters, k=rng.randrange(200))) for _ in range(300)]
    expected = {
        (text, bos, eos): reference.encode(text, bos=bos, eos=eos)
        for text in texts
        for bos in (False, True)
        for eos in (False, True)
    }
    encoder = MistralChatEncoder.load(path, text_cache_bytes).text_tokenizer
    monkeypatch.delattr("tiktoken.Encoding.encode")
    for (text, bos, eos), ids in expected.items():
        assert encoder.encode(text, bos=bos, eos=eos) == ids


def test_a_conversation_in_mistrals_format_encodes_its_new_messages_alone() -> None:
    cached = Normalizer.from_pretrained(EMBEDDED_MODEL, fast_paths=FastPaths())
    reference = Normalizer.from_pretrained(EMBEDDED_MODEL, fast_paths=REFERENCE_ONLY)
    messages = [{"role": "system", "content": "You are brief. " * 10}]
    for turn in range(4):
        messages.append({"role": "user", "content": f"{turn}: why is it so? " * 10})
        asked = [model.normalize(messages=messages) for model in (cached, reference)]
        assert asked[0].token_ids.tolist() == asked[1].token_ids.tolist()
        messages.append({"role": "assistant", "content": f"{turn}: because it is. " * 10})
