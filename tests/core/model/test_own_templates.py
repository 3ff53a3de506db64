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


@pytest.mark.parametrize("names", [["default"], ["default", "tool_use"]])
def test_hunyuan_renders_no_chat_with_a_list_of_templates(
    names: list[str], changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0: TypeError, as its processor takes the list for a text; with tools none is."""

    def change(files: Files) -> None:
        del files["chat_template.jinja"]
        listed = [{"name": name, "template": f"From {name}."} for name in names]
        files["tokenizer_config.json"]["chat_template"] = listed

    model = Normalizer.from_pretrained(changed_model("small-hunyuan-vl", change))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert not model.normalize(messages=ASKED).exact
    assert model.normalize(messages=ASKED, tools=[tool]).exact
