"""The fields by which vLLM 0.33.0 samples and counts videos, with its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_models import media_model, write_model

from mmroute import ImageSize, VideoSize
from mmroute.errors import InexactError, Reason
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import MediaRules
from mmroute.requests.items import Modality

Changes = Mapping[str, Mapping[str, Any]]
IMAGE, VIDEO = "preprocessor_config.json", "video_preprocessor_config.json"
GLM_SIZE = {"size": {"shortest_edge": 9000, "longest_edge": 900000}}
LONG, SHORT = VideoSize(200, 120, 40, 5.0), VideoSize(203, 125, 7, 4.0)


def media_of(name: str, changes: Changes, folder: Path) -> Mapping[Modality, MediaRules]:
    files = media_model(name)
    for file, fields in changes.items():
        files[file] = {**files.get(file, {}), **fields}
    return resolve_model(str(write_model(files, folder / name))).media


@pytest.mark.parametrize(
    ("name", "changes", "tokens"),
    [
        ("small-qwen3-vl", {}, (192, 48)),
        ("small-qwen3-vl", {IMAGE: {"merge_size": 4}}, (48, 12)),
        ("small-qwen3-vl", {IMAGE: {"merge_size": 1}}, (768, 192)),
        ("small-qwen3-vl", {VIDEO: {"merge_size": 4}}, (192, 48)),
        ("small-qwen3-vl", {VIDEO: {"merge_size": 1}}, (192, 52)),
        ("small-qwen3-vl", {VIDEO: {"temporal_patch_size": 1}}, (384, 96)),
        ("small-qwen3-vl", {VIDEO: {"temporal_patch_size": 3}}, (144, 48)),
        ("small-qwen3-vl", {VIDEO: {"video_processor_type": None}}, (384, 48)),
        ("small-qwen3-vl", {VIDEO: {"do_sample_frames": None, "fps": None}}, (192, 48)),
        ("small-glm-4.1v", {}, (224, 56)),
        ("small-glm-4.1v", {IMAGE: {"merge_size": 4}}, (64, 16)),
        ("small-glm-4.1v", {VIDEO: {**GLM_SIZE, "merge_size": 4}}, (256, 64)),
        ("small-minimax-m3", {VIDEO: {"merge_size": 4}}, (128, 32)),
        ("small-minimax-m3", {VIDEO: {"temporal_patch_size": 3}}, (84, 28)),
        ("small-minimax-m3", {VIDEO: {"min_pixels": 100000}}, (540, 135)),
        ("small-minimax-m3", {VIDEO: {"video_processor_type": None}}, (448, 112)),
        ("small-qwen2-vl", {}, (224, 56)),
        ("small-qwen2-vl", {VIDEO: {"merge_size": 4}}, (1280, 320)),
        ("small-qwen2-vl", {VIDEO: {"patch_size": 7}}, (4320, 1044)),
        ("small-qwen2-vl", {VIDEO: {"video_processor_type": None}}, (2160, 540)),
        ("small-qwen2-vl", {IMAGE: {"video_processor_type": None}}, (448, 112)),
        ("small-qwen2-vl", {IMAGE: {"temporal_patch_size": 4}}, (112, 28)),
        ("small-qwen2-vl", {IMAGE: {"min_pixels": None}}, (1080, 270)),
    ],
)
def test_videos_count_as_in_the_engine(
    name: str, changes: Changes, tokens: tuple[int, int], tmp_path: Path
) -> None:
    grid: Any = media_of(name, changes, tmp_path)[Modality.VIDEO].geometry.grid
    assert (grid.count(LONG).total, grid.count(SHORT).total) == tokens


@pytest.mark.parametrize("field", ["fps", "min_frames", "max_frames"])
def test_null_fails_where_the_processor_samples_all_frames_again(
    field: str, tmp_path: Path
) -> None:
    """As it does if the plain loader of a class without a name decodes them all."""
    changes = {VIDEO: {"video_processor_type": None, field: None}}
    grid: Any = media_of("small-qwen3-vl", changes, tmp_path)[Modality.VIDEO].geometry.grid
    with pytest.raises(InexactError) as caught:
        grid.count(SHORT)
    assert caught.value.reason is Reason.ITEM_REFUSED
    assert grid.count(LONG).total == 384


@pytest.mark.parametrize(
    ("name", "file", "field", "value"),
    [
        ("small-qwen3-vl", VIDEO, "cap_pixels_per_frame", True),
        ("small-qwen3-vl", VIDEO, "do_center_crop", True),
        ("small-qwen3-vl", VIDEO, "do_resize", False),
        ("small-qwen3-vl", VIDEO, "input_data_format", "channels_first"),
        ("small-qwen3-vl", VIDEO, "patch_size", None),
        ("small-qwen3-vl", VIDEO, "resample", 6),
        ("small-qwen3-vl", VIDEO, "video_processor_type", "Glm4vVideoProcessor"),
        ("small-qwen2-vl", IMAGE, "cap_pixels_per_frame", True),
        ("small-qwen2-vl", IMAGE, "do_sample_frames", True),
    ],
)
def test_videos_of_a_file_that_is_not_covered_are_left_out(
    name: str, file: str, field: str, value: object, tmp_path: Path
) -> None:
    """vLLM counts them otherwise, or fails. It answers text and images as ever."""
    media = media_of(name, {file: {field: value}}, tmp_path)
    assert [*media] == [Modality.IMAGE]


@pytest.mark.parametrize("value", [None, False])
def test_null_in_do_center_crop_is_false(value: object, tmp_path: Path) -> None:
    """transformers 5 saves such nulls."""
    media = media_of("small-qwen3-vl", {VIDEO: {"do_center_crop": value}}, tmp_path)
    assert Modality.VIDEO in media


@pytest.mark.parametrize(
    ("field", "value"),
    [("temporal_patch_size", None), ("resample", None), ("resample", 4), ("do_center_crop", True)],
)
def test_images_with_which_the_engine_always_fails_are_left_out(
    field: str, value: object, tmp_path: Path
) -> None:
    assert Modality.IMAGE not in media_of("small-qwen2.5-vl", {IMAGE: {field: value}}, tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "tokens"),
    [
        ("small-cosmos3-edge", {IMAGE: {"temporal_patch_size": 3}}, 312),
        ("small-hunyuan-vl", {"processor_config.json": {"cat_extra_token": None}}, 242),
        ("small-hunyuan-vl", {IMAGE: {"max_pixels": None}}, 244),
        ("small-minimax-m3", {IMAGE: {"do_resize": False}}, 120),
        ("small-glm-4.1v", {IMAGE: {"do_resize": None}}, 4),
    ],
)
def test_images_count_as_in_the_engine(
    name: str, changes: Changes, tokens: int, tmp_path: Path
) -> None:
    grid: Any = media_of(name, changes, tmp_path)[Modality.IMAGE].geometry.grid
    picture = ImageSize(56, 56) if tokens == 4 else ImageSize(1283, 721)
    assert grid.count(picture).total == tokens


@pytest.mark.parametrize("value", [None, [], [0.5, 0.5]])
@pytest.mark.parametrize("name", ["small-dots-ocr", "small-hunyuan-vl", "small-minimax-m3"])
def test_a_mean_needs_one_value_or_one_for_each_channel(
    name: str, value: object, tmp_path: Path
) -> None:
    """Where the engine itself normalizes the pixels, it does not read it."""
    changes = {IMAGE: {"image_mean": value}}
    assert Modality.IMAGE not in media_of(name, changes, tmp_path)
    assert Modality.IMAGE in media_of("small-qwen2.5-vl", changes, tmp_path)
