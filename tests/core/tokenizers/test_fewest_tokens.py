"""A text that cannot fit is refused before it is encoded, and none that can."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from media_files import png_url
from small_models import SMALL_MODELS

from mmroute import Normalizer, Reason
from mmroute.tokenizers.fewest_tokens import FewestTokens

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
