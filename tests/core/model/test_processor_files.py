"""The files of a model's processors: which one is read, and which contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import Files

from mmroute import ModelError, Reason
from mmroute.model.resolve import resolve_model
from mmroute.requests.items import Modality


def _why_refused(path: Path) -> str:
    """Why a model, or items of it, are refused."""
    try:
        return " ".join(resolve_model(str(path)).uncovered.values())
    except ModelError as error:
        return str(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"size": {"height": 560, "width": 560}},
        {"size": {"height": 560, "width": 560}, "min_pixels": 3136, "max_pixels": 200704},
        {"size": {"longest_edge": 200704}},
        {"size": {}},
        {"size": 448},
    ],
)
@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-qwen2-vl"])
def test_a_size_replaces_the_engines_own_as_a_whole(
    name: str, fields: dict[str, Any], changed_model: Callable[..., Path]
) -> None:
    """With each of these vLLM 0.33.0 does not start: KeyError 'longest_edge', and the like."""

    def change(files: Files) -> None:
        kept = files["preprocessor_config.json"]
        for field in ("min_pixels", "max_pixels"):
            kept.pop(field, None)
        kept |= fields

    why = resolve_model(str(changed_model(name, change))).uncovered[Modality.IMAGE]
    assert "preprocessor_config.json:size is" in why


def test_a_smallest_area_may_be_written_with_a_decimal_point(
    changed_model: Callable[..., Path],
) -> None:
    """vLLM 0.33.0 starts and counts by it; with such a largest area it does not start."""

    def change(files: Files, field: str, value: float) -> None:
        files["preprocessor_config.json"][field] = value

    def write(field: str, value: float) -> str:
        return str(changed_model("small-qwen2.5-vl", lambda files: change(files, field, value)))

    geometry = resolve_model(write("min_pixels", 3136.0)).media[Modality.IMAGE].geometry
    assert geometry == resolve_model(write("min_pixels", 3136)).media[Modality.IMAGE].geometry
    for field, value in (("min_pixels", 3136.5), ("max_pixels", 1003520.0)):
        assert field in resolve_model(write(field, value)).uncovered[Modality.IMAGE]


@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-llava-onevision"])
def test_a_processor_without_a_video_part_is_refused(
    name: str, changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0 does not start, of whatever modality its requests are."""

    def change(files: Files) -> None:
        nested = files.pop("preprocessor_config.json")
        files["processor_config.json"] = {"image_processor": nested}

    with pytest.raises(ModelError, match="no video_processor in processor_config") as caught:
        resolve_model(str(changed_model(name, change)))
    assert caught.value.reason is Reason.MISSING_FILE


def test_videos_of_another_image_processor_are_not_taken(
    changed_model: Callable[..., Path],
) -> None:
    """Without a file of its own, transformers takes the namesake of the image processor."""

    def change(files: Files) -> None:
        files["preprocessor_config.json"]["image_processor_type"] = "Qwen2VLImageProcessor"

    media = resolve_model(str(changed_model("small-qwen3-vl", change))).media
    assert [*media] == [Modality.IMAGE]


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("image_processor_type", "SiglipImageProcessor"),
        ("image_processor_type", "SiglipImageProcessorFast"),
        ("image_processor_type", "NoSuchImageProcessor"),  # transformers then loads none at all
        ("feature_extractor_type", "CLIPFeatureExtractor"),
    ],
)
def test_images_of_a_processor_with_which_the_family_was_not_compared_are_left_out(
    field: str, named: str, changed_model: Callable[..., Path]
) -> None:
    def change(files: Files) -> None:
        del files["preprocessor_config.json"]["image_processor_type"]
        files["preprocessor_config.json"][field] = named

    model = resolve_model(str(changed_model("small-qwen2.5-vl", change)))
    for modality in (Modality.IMAGE, Modality.VIDEO):  # whose patches count for both
        assert "name the class" in model.uncovered[modality]


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("small-qwen2.5-vl", "preprocessor_config.json", "ImageProcessor"),
        ("small-qwen2.5-vl", "video_preprocessor_config.json", "VideoProcessor"),
        ("small-paligemma", "config.json", "ImageProcessor"),
        ("small-kimi-vl", "preprocessor_config.json", "ImageProcessor"),
        ("small-audio-flamingo-3", "preprocessor_config.json", "FeatureExtractor"),
    ],
)
def test_a_processor_of_the_models_own_code_is_refused_unless_the_family_was_compared_with_it(
    name: str, file: str, part: str, changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0 loads it with --trust-remote-code, also where the files name a known class."""

    def change(files: Files) -> None:
        if file == "config.json":
            del files["preprocessor_config.json"]["image_processor_type"]
        named = {f"Auto{part}": f"owner/repository--own_code.Own{part}"}
        files.setdefault(file, {}).setdefault("auto_map", {}).update(named)

    why = _why_refused(changed_model(name, change))
    assert "the class 'Own" in why  # of videos, where the files name none but that of images
    assert "take out auto_map" in why


@pytest.mark.parametrize("field", ["fixed_output_tokens", "in_patch_limit_each_frame"])
def test_null_is_no_missing_field_to_kimi(field: str, changed_model: Callable[..., Path]) -> None:
    """vLLM 0.33.0 does not start without the field: KeyError."""

    def change(files: Files, *value: None) -> None:
        of_media = files["preprocessor_config.json"]["media_proc_cfg"]
        of_media.pop(field)
        of_media.update(dict.fromkeys([field] * len(value)))

    def load(*value: None) -> str:
        return _why_refused(changed_model("small-kimi-k2.5", lambda files: change(files, *value)))

    assert f"{field} must be" not in load(None)
    assert f"{field} must be there" in load()
