"""Templates that no file of the model has: the engine's own, and those of processor classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_models import Files

from mmroute import Normalizer

ASKED = [{"role": "user", "content": "Hello"}]
CHATML = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def without_templates(files: Files) -> None:
    files.pop("chat_template.jinja")


@pytest.mark.parametrize(
    ("model", "model_string", "text"),
    [
        ("small-minicpm-v-2.6", "openbmb/MiniCPM-V-2_6", CHATML),
        ("small-minicpm-v-4.6", "openbmb/MiniCPM-V-4.6", CHATML),
        ("small-minicpm-v-4.5", "openbmb/MiniCPM-V-4_5", f"{CHATML}<think>\n\n</think>\n\n"),
        ("small-minicpm-v-2.6", "finetuned-4.5", f"{CHATML}<think>\n\n</think>\n\n"),
    ],
)
def test_engine_chooses_by_the_model_string(
    model: str, model_string: str, text: str, changed_model: Callable[..., Path]
) -> None:
    directory = changed_model(model, without_templates)
    normalizer = Normalizer.from_pretrained(directory, model_id=model_string)
    routing = normalizer.normalize(messages=ASKED)
    assert routing.exact, routing.message
    wanted = normalizer.model.tokenizer.encode(text, add_special_tokens=False)
    assert routing.token_ids.tolist() == wanted.tolist()
