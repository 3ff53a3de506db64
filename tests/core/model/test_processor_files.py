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


def test_a_nested_image_processor_replaces_the_file(changed_model: Callable[..., Path]) -> None:
    """transformers 5 writes it into processor_config.json, and then reads it only there."""

    def change(files: Files) -> None:
        nested = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 200704}
        files["processor_config.json"] = {"image_processor": nested}

    model = resolve_model(str(changed_model("small-qwen2.5-vl", change)))
    places = {o.name: (o.value, o.source) for o in model.origins}
    assert places["max_pixels"] == (200704, "processor_config.json:image_processor.max_pixels")
    assert places["min_pixels"][1].startswith("default")


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


@pytest.mark.parametrize(
    "fields", [{"size": None}, {"size": {"shortest_edge": 3136}, "max_pixels": 200704}]
)
def test_a_size_is_completed_by_the_fields_beside_it(
    fields: dict[str, Any], changed_model: Callable[..., Path]
) -> None:
    def change(files: Files) -> None:
        kept = files["preprocessor_config.json"]
        del kept["min_pixels"], kept["max_pixels"]
        kept |= fields

    assert resolve_model(str(changed_model("small-qwen2.5-vl", change))).media


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


@pytest.mark.parametrize(
    ("files_added", "place"),
    [
        ({}, "preprocessor_config.json:merge_size"),
        ({"video_preprocessor_config.json": {"merge_size": 4}}, "video_preprocessor_config.json:"),
        ({"video_preprocessor_config.json": {"patch_size": 14}}, "default"),
        ({"processor_config.json": {"image_processor": {}}}, "preprocessor_config.json:merge_size"),
        (
            {"processor_config.json": {"video_processor": {"merge_size": 4}}},
            "processor_config.json:video_processor.merge_size",
        ),
    ],
)
def test_a_video_processor_is_read_from_one_place(
    files_added: Files, place: str, changed_model: Callable[..., Path]
) -> None:
    written = changed_model("small-qwen2.5-vl", lambda files: files.update(files_added))
    sources = {origin.name: origin.source for origin in resolve_model(str(written)).origins}
    assert sources["video.merge_size"].startswith(place)


@pytest.mark.parametrize(
    ("file", "field", "named", "videos"),
    [
        ("preprocessor_config.json", "image_processor_type", "Qwen2VLImageProcessor", False),
        ("video_preprocessor_config.json", "video_processor_type", "Qwen2VLVideoProcessor", False),
        ("video_preprocessor_config.json", "video_processor_type", "Qwen3VLVideoProcessor", True),
        ("video_preprocessor_config.json", "video_processor_type", None, True),
    ],
)
def test_videos_that_another_processor_reads_are_not_taken(
    file: str, field: str, named: str | None, *, videos: bool, changed_model: Callable[..., Path]
) -> None:
    """Without a file of its own, transformers takes the namesake of the image processor."""
    path = changed_model(
        "small-qwen3-vl", lambda files: files.setdefault(file, {}).update({field: named})
    )
    media = resolve_model(str(path)).media
    assert (Modality.VIDEO in media) is videos
    assert Modality.IMAGE in media


@pytest.mark.parametrize("named", [None, "Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"])
def test_an_image_processor_without_a_name_is_that_of_the_models_type(
    named: str | None, changed_model: Callable[..., Path]
) -> None:
    def change(files: Files) -> None:
        files["preprocessor_config.json"]["image_processor_type"] = named

    assert Modality.IMAGE in resolve_model(str(changed_model("small-qwen2.5-vl", change))).media


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


@pytest.mark.parametrize(("field", "value"), [("do_resize", False), ("temporal_patch_size", 2)])
def test_fields_with_which_keyes_own_code_fails_or_counts_otherwise_are_refused(
    field: str, value: object, changed_model: Callable[..., Path]
) -> None:
    path = changed_model(
        "small-keye", lambda files: files["preprocessor_config.json"].update({field: value})
    )
    assert f"{field} must be" in _why_refused(path)


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


@pytest.mark.parametrize("nested", ["feature_extractor", "audio_processor"])
def test_a_nested_feature_extractor_replaces_the_file(
    nested: str, changed_model: Callable[..., Path]
) -> None:
    """transformers 5 writes it into processor_config.json, under one of two names."""

    def change(files: Files) -> None:
        files["processor_config.json"] = {nested: {"hop_length": 80, "chunk_length": 15}}

    origins = resolve_model(str(changed_model("small-audio-flamingo-3", change))).origins
    places = {origin.name: (origin.value, origin.source) for origin in origins}
    place = f"processor_config.json:{nested}.hop_length"
    assert places["audio.hop_length"] == (80, place)
    assert places["audio.sampling_rate"][1].startswith("default")


@pytest.mark.parametrize(
    ("name", "field", "number"),
    [
        ("small-command-a-vision", "crop_to_patches", "cropped"),
        ("small-idefics3", "do_image_splitting", "split"),
    ],
)
def test_null_is_false_to_processors_that_ask_whether_a_field_is_true(
    name: str, field: str, number: str, changed_model: Callable[..., Path]
) -> None:
    """Where it is missing, it is true."""

    def change(files: Files) -> None:
        files["preprocessor_config.json"][field] = None

    origins = resolve_model(str(changed_model(name, change))).origins
    assert (number, False) in {(o.name, o.value) for o in origins if o.name == number}


def test_null_where_the_engine_does_not_start_is_refused(
    changed_model: Callable[..., Path],
) -> None:
    def change(files: Files) -> None:
        files["config.json"]["max_position_embeddings"] = None

    with pytest.raises(ModelError, match=r"max_position_embeddings.* found None") as caught:
        resolve_model(str(changed_model("small-qwen2.5-vl", change)))
    assert caught.value.reason is Reason.INVALID_CONFIG_FIELD


def test_extra_special_tokens_win_over_a_field_of_their_name(
    changed_model: Callable[..., Path],
) -> None:
    """As transformers merges them; another token that the vocabulary has would go unnoticed."""
    path = changed_model(
        "small-gemma-3", lambda files: files["tokenizer_config.json"].update(boi_token="<bos>")
    )
    names = {origin.name: origin for origin in resolve_model(str(path)).origins}
    start = names["start_token_text"]
    assert start.source == "tokenizer_config.json:extra_special_tokens.boi_token"


@pytest.mark.parametrize(
    "place", ["processor_config.json", "preprocessor_config.json", "tokenizer_config.json"]
)
def test_a_processor_is_named_in_any_of_three_files(
    place: str, changed_model: Callable[..., Path]
) -> None:
    """By the first of them that names one: GLM's two write the time of a frame differently."""

    def change(files: Files) -> None:
        files["processor_config.json"] = {}
        for name in ("preprocessor_config.json", "tokenizer_config.json"):
            files[name].pop("processor_class", None)
        files[place]["processor_class"] = "Glm46VProcessor"
        files["video_preprocessor_config.json"] = {
            "size": {"shortest_edge": 9000, "longest_edge": 90000}
        }

    origins = resolve_model(str(changed_model("small-glm-4.1v", change))).origins
    (time,) = [origin for origin in origins if origin.name == "video.time"]
    assert time.source == f"{place}:processor_class"


def test_tokens_by_which_the_engine_writes_videos_must_agree(
    changed_model: Callable[..., Path],
) -> None:
    def change(files: Files) -> None:
        files["video_preprocessor_config.json"] = {
            "size": {"shortest_edge": 9000, "longest_edge": 90000},
        }
        files["config.json"]["video_end_token_id"] = 1

    with pytest.raises(ModelError, match="video_end_token_id") as caught:
        resolve_model(str(changed_model("small-glm-4.1v", change)))
    assert caught.value.reason is Reason.CONTRADICTORY_CONFIG
