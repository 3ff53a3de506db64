"""Which tokens are special where an output is decoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import Files

from mmroute import Normalizer


# Each case was seen so in transformers 5.20.2, as vLLM 0.33.0 loads it.
@pytest.mark.parametrize(
    ("name", "token", "unnamed", "change"),
    [
        ("small-qwen2.5-vl", "<|im_end|>", "<|video_pad|>", {}),  # its eos_token
        (
            "small-qwen2.5-vl",
            "<|vision_pad|>",
            "<|video_pad|>",
            {"additional_special_tokens": ["<|vision_pad|>"]},
        ),
        (
            "small-qwen2.5-vl",
            "<|vision_pad|>",
            "<|video_pad|>",
            {"extra_special_tokens": {"p": "<|vision_pad|>"}},
        ),
        ("small-llava-1.5", "<image>", "<pad>", {"pad_token": None}),  # its image_token
        ("small-gemma-3", "<mask>", "<end_of_turn>", {}),  # the class says so
    ],
)
def test_tokens_with_a_name_are_special_whatever_tokenizer_json_says(
    changed_model: Callable[..., Path], name: str, token: str, unnamed: str, change: dict[str, Any]
) -> None:
    def not_special(files: Files) -> None:
        for entry in files["tokenizer.json"]["added_tokens"]:
            entry["special"] = False
        files["tokenizer_config.json"].pop("added_tokens_decoder", None)
        files["tokenizer_config.json"].update(change)

    tokenizer = Normalizer.from_pretrained(changed_model(name, not_special)).model.tokenizer
    token_id = tokenizer.token_id(token)
    assert token_id is not None
    assert tokenizer.decode([token_id]) == token
    assert tokenizer.decode([token_id], skip_special_tokens=True) == ""
    other = tokenizer.token_id(unnamed)
    assert other is not None
    assert tokenizer.decode([other], skip_special_tokens=True) == unnamed
