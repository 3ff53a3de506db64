"""``tokenizer.json`` as vLLM's Rust frontend takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_models import SMALL_MODELS, write_model

from mmroute import EngineSettings, Normalizer
from mmroute.engines.frontends import Frontend
from mmroute.errors import ModelError

_TO_LONGEST = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "<unk>",
}


def ids_with(padding: dict[str, Any] | None, directory: Path) -> list[int]:
    files = SMALL_MODELS["small-llava-1.5"]()
    files["tokenizer.json"] = {**files["tokenizer.json"], "padding": padding}
    model = write_model(files, directory)
    settings = EngineSettings(frontend=Frontend.RUST)
    normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
    found: list[int] = normalizer.normalize(prompt="Once upon a time").token_ids.tolist()
    return found


def test_padding_to_the_longest_text_changes_no_prompt(tmp_path: Path) -> None:
    assert ids_with(_TO_LONGEST, tmp_path / "a") == ids_with(None, tmp_path / "b")


@pytest.mark.parametrize("more", [{"strategy": {"Fixed": 64}}, {"pad_to_multiple_of": 8}])
def test_other_padding_is_refused(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="padding is set"):
        ids_with({**_TO_LONGEST, **more}, tmp_path / "model")
