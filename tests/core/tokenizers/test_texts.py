"""What a tokenizer knows of its texts: the fewest tokens, known ones, mistral-common's."""

from __future__ import annotations

import importlib.metadata
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mistral_common
import pytest
from hypothesis import given
from hypothesis import strategies as st
from media_files import png_url
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from small_models import SMALL_MODELS

from mmroute import FastPaths, Normalizer, Reason
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.tokenizers.fewest_tokens import FewestTokens
from mmroute.tokenizers.formats.mistral import KnownTexts, MistralChatEncoder, Tekken

# Marks that compose, and characters and tokens of every kind.
PIECES = [
    *string.ascii_letters, *string.digits, *string.punctuation, "the", "internationalization", " ",
    "\n", "\u0301", "\u0308", "\u0338", "\u1100\u1161", "\u11a8", "\uac00", "\ub098", "\ud7a3",
    "\u4e2d", "\u4e2d\u56fd", "\u9fff", "\uf900", "\u304b\u3099", "\u3002", "\u0439", "\u00e4",
    "\u212a", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001d15e", "\U00020000", "----",
    "<|image_pad|>", "<image>", "[IMG]", ".getElementById", "</div>",
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_no_text_has_fewer_tokens(name: str, small_model: Callable[[str], Path]) -> None:
    tokenizer = Normalizer.from_pretrained(small_model(name)).model.tokenizer
    bound = tokenizer.fewest_tokens
    if bound is None:
        return
    draw = random.Random(name)
    for _ in range(150):
        few = draw.sample(PIECES, draw.randint(1, 5))
        text = "".join(draw.choices(few, k=draw.randint(1, 200)))
        count = len(tokenizer.encode(text, add_special_tokens=False))
        assert bound(text) <= count, text


@pytest.mark.parametrize(
    "entries",
    [
        ["ab", "1", "-!", "\u4e2d", "\u6587\u4e2d"],
        ["ab", "1", "-!", "\xe4\xb8\u0143", "\xe6\u0138\u0129\xe4"],
    ],
)
def test_a_token_stands_for_the_characters_of_its_entry(entries: list[str]) -> None:
    bound = FewestTokens(entries)
    assert bound("ab" * 6) == bound("1" * 6) == bound("-!" * 6) == bound("\u4e2d" * 12) == 6
    assert bound("ab1-!\u4e2d\u6587" * 6) == 4 * 6
    assert bound("a\u0301" * 6 + " " * 6) == 0


def test_a_token_of_two_kinds_counts_once() -> None:
    assert FewestTokens(["aaaa", "1", "a1"])("a1" * 10) == 10


KINDS = {"letter": "a", "letters": string.ascii_lowercase, "digits": "0123456789",
         "ideographs": "\u4e2d\u6587\u5b57\u7b26\u6d4b\u8bd5", "syllables": "\ud55c\ub098",
         "emoji": "\U0001f600\U0001f680", "all": "ab1\u4e2d,\u6587.\U0001f600"}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_refused_before_it_is_encoded(
    kind: str, normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = normalizer("small-qwen2.5-vl")

    def encode(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was encoded")

    monkeypatch.setattr(type(model.model.tokenizer), "encode", encode)
    text = KINDS[kind] * ((2 << 20) // len(KINDS[kind]))
    image = {"type": "image_url", "image_url": {"url": png_url(64, 64)}}
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    beside = [{"role": "user", "content": [image, {"type": "text", "text": text}]}]
    for routing in (
        model.normalize(prompt=text),
        model.normalize(messages=messages),
        model.normalize(messages=beside),
    ):
        assert routing.reason is Reason.PROMPT_TOO_LONG
        assert "at least" in routing.message


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


READ: Final = "1.13"
TEKKEN: Final = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
CHAT: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Où? 日本"}
]  # fmt: skip


def test_it_is_the_version_that_was_read() -> None:
    assert importlib.metadata.version("mistral-common").startswith(f"{READ}.")
    load = MistralTokenizer.from_file.__func__  # type: ignore[attr-defined]  # a classmethod
    assert "Tekkenizer" in load.__code__.co_names
    assert load.__globals__["Tekkenizer"] is Tekkenizer


def test_a_tokenizer_with_our_parts_encodes_as_its_own() -> None:
    own = MistralTokenizer.from_file(str(TEKKEN))
    encoder = MistralChatEncoder.load(TEKKEN)
    assert isinstance(encoder.text_tokenizer, Tekken)
    request: Any = ChatCompletionRequest.from_openai(messages=CHAT)
    expected = own.encode_chat_completion(request)
    assert expected.text
    ids = encoder.encode(CHAT, tools=None, continue_final_message=False)
    assert ids.tolist() == expected.tokens
    assert encoder.backend.encode_chat_completion(request).text == ""  # nothing was decoded
    assert encoder.text_tokenizer.vocab() == own.instruct_tokenizer.tokenizer.vocab()
