"""What Inkling's items depend on, beside the engine's answers in the vectors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from small_models import ALL_MODELS, Files, write_model

from mmroute import AudioLength, ImageSize, InexactError, Normalizer, Reason
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.requests.items import Modality

FILES = ALL_MODELS["small-inkling-items"]()
CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "audio"}]}]
ITEMS: dict[str, Any] = {"images": [ImageSize(30, 20)], "audios": [AudioLength(24000, 24000)]}


def changed(file: str, part: str, **values: Any) -> Files:
    files = {**FILES, file: copy.deepcopy(FILES[file])}
    files[file][part] |= values
    return files


def test_a_longest_side_of_null_is_none_for_the_engine(tmp_path: Path) -> None:
    """It does not stand for the default, as it does in other fields."""
    files = changed(
        "processor_config.json", "image_processor", rescale_image_max_upscaled_long_edge=None
    )
    normalizer = Normalizer.from_pretrained(write_model(files, tmp_path / "m"))
    assert "max_side" in normalizer.model.uncovered[Modality.IMAGE]


@pytest.mark.parametrize(("part", "kind"), [("vision_config", "image"), ("audio_config", "audio")])
def test_a_model_without_a_tower_takes_no_such_items(part: str, kind: str, tmp_path: Path) -> None:
    files = changed("config.json", part, decoder_dmodel=None)
    normalizer = Normalizer.from_pretrained(write_model(files, tmp_path / "m"))
    routing = normalizer.normalize(messages=CHAT, **ITEMS)
    assert routing.reason == Reason.UNSUPPORTED_MODALITY
    assert kind in routing.message


def test_more_than_ten_minutes_of_audio_are_refused(tmp_path: Path) -> None:
    """Of as many samples as 12,000 tokens have, none of them filled up."""
    settings = VllmSettings.from_args("--max-num-batched-tokens 20000")
    normalizer = Normalizer.from_pretrained(
        write_model(FILES, tmp_path / "m"), engine_settings=settings
    )
    chat = [{"role": "user", "content": [{"type": "audio"}]}]
    longest = 12000 * 960
    assert normalizer.normalize(messages=chat, audios=[AudioLength(longest, 24000)]).exact
    routing = normalizer.normalize(messages=chat, audios=[AudioLength(longest + 1, 24000)])
    assert routing.reason == Reason.ITEM_REFUSED


def test_its_blocks_have_the_size_that_the_worker_tells(tmp_path: Path) -> None:
    """The state of its convolutions is in blocks of fewer tokens, which decide the hashes."""
    normalizer = Normalizer.from_pretrained(write_model(FILES, tmp_path / "m"))
    routing = normalizer.normalize(prompt_token_ids=[*range(70)])
    with pytest.raises(InexactError, match="hybrid"):
        routing.block_hashes()
    assert len(routing.block_hashes(block_size=4)) == 17


def test_tools_that_cannot_be_written_in_the_order_of_their_names(tmp_path: Path) -> None:
    normalizer = Normalizer.from_pretrained(write_model(FILES, tmp_path / "m"))
    function = {"name": "f", "parameters": {"properties": {1: {}, "a": {}}}}
    routing = normalizer.normalize(
        messages=[{"role": "user", "content": "a"}],
        tools=[{"type": "function", "function": function}],
    )
    assert routing.reason is Reason.INVALID_REQUEST


def test_the_rust_frontend_s_items_are_refused(tmp_path: Path) -> None:
    settings = RustSettings()
    directory = write_model(FILES, tmp_path / "m")
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    for request in (
        {"messages": CHAT, **ITEMS},
        {"prompt": "<|content_image|>", "images": ITEMS["images"]},
        {"prompt": "<|content_audio_input|>", "audios": ITEMS["audios"]},
    ):
        assert not normalizer.normalize(**request).exact
    assert normalizer.normalize(prompt="a").exact
