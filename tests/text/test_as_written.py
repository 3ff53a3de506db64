"""``tokenizer.json`` as vLLM's Rust frontend takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from format_helpers import MISTRAL
from small_models import SMALL_MODELS, write_model

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import ModelError, Reason

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
    settings = RustSettings()
    normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
    found: list[int] = normalizer.normalize(prompt="Once upon a time").token_ids.tolist()
    return found


def test_padding_to_the_longest_text_changes_no_prompt(tmp_path: Path) -> None:
    assert ids_with(_TO_LONGEST, tmp_path / "a") == ids_with(None, tmp_path / "b")


@pytest.mark.parametrize("more", [{"strategy": {"Fixed": 64}}, {"pad_to_multiple_of": 8}])
def test_other_padding_is_refused(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="padding is set"):
        ids_with({**_TO_LONGEST, **more}, tmp_path / "model")


# Source: answers of vLLM 0.33.0's `vllm-rs render` for this directory.
@pytest.mark.parametrize(
    ("special", "ids"),
    [
        (True, [1, 1060, 1115, 1062, 37133, 1766, 3174, 3074, 1093]),
        (False, [1060, 1115, 1062, 37133, 1766, 3174, 3074, 1093]),
    ],
)
def test_tekken_is_preferred_and_reads_special_tokens_as_text(
    special: bool, ids: list[int], tmp_path: Path
) -> None:
    model = write_model(SMALL_MODELS["small-llava-1.5"](), tmp_path / "m")
    (model / "tekken.json").symlink_to(MISTRAL / "tekken_240911.json")
    settings = RustSettings()
    normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
    found = normalizer.normalize(prompt="<s>Hi [INST]", add_special_tokens=special)
    assert found.token_ids.tolist() == ids


# Source: answers of vLLM 0.33.0's `vllm-rs render` for both directories.
@pytest.mark.parametrize(
    ("tokenizer_class", "covered"), [("LlamaTokenizer", True), ("MyTikTokenTokenizer", False)]
)
def test_ranks_are_read_if_the_class_says_so(
    tokenizer_class: str, covered: bool, tmp_path: Path
) -> None:
    files = SMALL_MODELS["small-llava-1.5"]()
    files["tokenizer_config.json"] |= {"tokenizer_class": tokenizer_class}
    model = write_model(files, tmp_path / "m")
    (model / "x.tiktoken").write_text("YQ== 0\nYg== 1\n", encoding="ascii")
    settings = RustSettings()
    if covered:
        assert Normalizer.from_pretrained(model, engine_settings=settings)
        return
    with pytest.raises(ModelError, match=r"reads x\.tiktoken") as refused:
        Normalizer.from_pretrained(model, engine_settings=settings)
    assert refused.value.reason is Reason.TOKENIZER_UNVERIFIED
