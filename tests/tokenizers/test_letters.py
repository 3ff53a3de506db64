"""A text that cannot fit is refused before it is encoded, and none that can."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import SMALL_MODELS

from mmroute import Normalizer, Reason
from mmroute.tokenizers.letters import fewest_tokens

# Marks that compose with letters, tokens, spaces and letters beyond ASCII.
PIECES = [
    *string.ascii_letters, "the", "internationalization", " ", "\n", "\u0301", "\u0308",
    "\u1100\u1161", "\u4e2d", "<|image_pad|>", "<image>", "[IMG]", "1", ".", "\U0001f600",
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_no_text_has_fewer_tokens(name: str, small_model: Callable[[str], Path]) -> None:
    tokenizer = Normalizer.from_pretrained(small_model(name)).model.tokenizer
    most = tokenizer.max_letters_per_token
    if most is None:
        return
    draw = random.Random(name)
    for _ in range(300):
        few = draw.sample(PIECES, draw.randint(1, 5))
        text = "".join(draw.choices(few, k=draw.randint(1, 200)))
        count = len(tokenizer.encode(text, add_special_tokens=False))
        assert fewest_tokens(text, most) <= count, text


@pytest.mark.parametrize("letters", ["a", "abcdefghijklmnopqrstuvwxyz"])
def test_a_text_of_letters_is_refused_before_it_is_encoded(
    letters: str, small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    normalizer = Normalizer.from_pretrained(small_model("small-qwen2.5-vl"))

    def encode(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was encoded")

    monkeypatch.setattr(type(normalizer.model.tokenizer), "encode", encode)
    text = letters * ((8 << 20) // len(letters))
    messages = [{"role": "user", "content": text}]
    for routing in (normalizer.normalize(prompt=text), normalizer.normalize(messages=messages)):
        assert routing.reason is Reason.PROMPT_TOO_LONG
        assert "tokens" in routing.message
