"""What a request may say to a processor, and what of the counts it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast, Qwen2Config

from mmroute.errors import InexactError, Reason
from mmroute.families.matching import known_families
from mmroute.geometry.arguments import Arguments, Others
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grids.anyres import AnyRes
from mmroute.geometry.grids.canvas_tiles import CanvasTiles
from mmroute.geometry.grids.frame_groups import FramePairs
from mmroute.geometry.grids.navit import Navit
from mmroute.geometry.grids.patch_budget import BudgetedFrames
from mmroute.geometry.grids.smart_resize import SmartResize
from mmroute.geometry.grids.thumbnail_tiles import ThumbnailTiles
from mmroute.requests.items import Modality

QWEN = SmartResize(patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056)
LFM2 = ThumbnailTiles(
    tile_size=512, patch_size=16, downsample_factor=2, min_tiles=2, max_tiles=10,
    min_image_tokens=64, max_image_tokens=256, max_pixels_tolerance=2.0, thumbnail=True, split=True,
)  # fmt: skip
NAVIT = Navit(patch_size=14, merge_size=2, max_patches=16384, max_patches_per_side=512)


def accepted(family: str, modality: Modality = Modality.IMAGE) -> Arguments:
    """What the processor of a family takes, by its spec."""
    (spec,) = (spec for spec in known_families() if spec.family == family)
    return spec.media[modality].arguments(modality)


def refused(arguments: Arguments, grid: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a request is refused, for the reason that is for that."""
    try:
        arguments.applied(grid, kwargs)
    except InexactError as error:
        return error.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS
    return False


@pytest.mark.parametrize(
    "kwargs",
    [
        {"videos_kwargs": {"fps": 2, "do_rescale": True}},
        {"videos_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": 50176}}},
        {"max_frames": 8},
        {"made_up": [1]},
        {"downsample_ratio": 0.5},
    ],
)
def test_what_videos_are_told_changes_no_image(kwargs: dict[str, Any]) -> None:
    assert Arguments(Modality.IMAGE).applied(QWEN, kwargs) == QWEN


@pytest.mark.parametrize(
    "kwargs",
    [
        {"videos_kwargs": {"fps": "fast"}},
        {"videos_kwargs": {"made_up": 1}},
        {"videos_kwargs": {"size": {"longest_edge": 0, "shortest_edge": 1}}},
        {"videos_kwargs": {"disable_grouping": True}},
        {"max_frames": "many"},
        {"temporal_patch_size": "x"},
        {"image_token": 7},
        {"downsample_ratio": [1]},
        {"vision_config": 1},
        {"tokenizer_file": True},
        {"processor_cls": None},
        {"processor_name": "x"},
        {"model_config": {}},
        {"images_kwargs": []},
        {"__class__": 1},
    ],
)
def test_a_processor_checks_what_it_would_need_for_videos(kwargs: dict[str, Any]) -> None:
    assert refused(Arguments(Modality.IMAGE), QWEN, kwargs)


def test_no_name_that_a_configuration_or_tokenizer_has_passes() -> None:
    for name in {*dir(Qwen2Config), *dir(PreTrainedTokenizerFast)}:
        assert refused(Arguments(Modality.IMAGE), QWEN, {name: [1]}), name


def test_a_spec_says_what_its_video_processor_knows_beside_that() -> None:
    kwargs = {"videos_kwargs": {"max_pixels": 50176}}
    assert accepted("qwen2.5-vl").applied(QWEN, kwargs) == QWEN
    assert refused(Arguments(Modality.IMAGE), QWEN, kwargs)


@pytest.mark.parametrize(("value", "passes"), [(False, True), (True, False), (None, False)])
def test_frames_are_not_chosen_again(value: object, passes: bool) -> None:
    """vLLM 0.33.0 fails on true where its frames are not those of a whole video."""
    arguments = accepted("internvl", Modality.VIDEO)
    for kwargs in ({"do_sample_frames": value}, {"videos_kwargs": {"do_sample_frames": value}}):
        assert refused(arguments, object(), kwargs) is not passes


def test_one_of_two_switches_that_must_be_equal() -> None:
    assert refused(accepted("kimi-k2.5"), NAVIT, {"images_kwargs": {"do_rescale": True}})


def test_even_processors_that_read_no_arguments_fail_on_a_second_one_of_one_name() -> None:
    unread = Arguments(Modality.IMAGE, others=Others.UNREAD)
    assert not refused(unread, NAVIT, {"images_kwargs": {"made_up": 1}})
    assert refused(unread, NAVIT, {"images_kwargs": {"images": 64}})
    assert refused(unread, NAVIT, {"self": 1})


def test_frames_that_are_not_taken_again_must_be_a_number() -> None:
    grid = FramePairs(
        patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056, sampler=Sampler.QWEN2_VL
    )
    arguments = accepted("qwen2.5-vl", Modality.VIDEO)
    assert refused(arguments, grid, {"num_frames": 0.5})
    flat, inside = {"max_pixels": 50176}, {"videos_kwargs": {"max_pixels": 50176}}
    assert arguments.applied(grid, flat) == arguments.applied(grid, inside)
    omni = accepted("qwen2.5-omni", Modality.VIDEO)
    assert omni.applied(grid, inside).max_pixels == 50176
    assert refused(omni, grid, flat)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_soft_tokens": 448},
        {"max_soft_tokens": 70.0},
        {"videos_kwargs": {"max_soft_tokens": None}},
    ],
)
def test_gemma_4_knows_few_budgets_of_videos(kwargs: dict[str, Any]) -> None:
    """vLLM 0.33.0 fails on these, and counts by its own budget whatever it is told."""
    grid = BudgetedFrames(patch_size=16, pooling_size=3, max_soft_tokens=70, sampler=Sampler.OPENCV)
    arguments = accepted("gemma-4", Modality.VIDEO)
    for told in ({"max_soft_tokens": 140}, {"videos_kwargs": {"max_soft_tokens": 448}}):
        assert arguments.applied(grid, told) == grid
    assert refused(arguments, grid, kwargs)


def test_llama_4_reads_a_flat_switch_alone_and_fails_on_what_it_checks() -> None:
    """vLLM 0.33.0 counts by the flat switch. A nested one reaches the processor only."""
    grid = CanvasTiles(tile_size=336, max_tiles=16, patch_size=14, pixel_shuffle_ratio=0.5)
    arguments = accepted("llama-4")
    assert arguments.applied(grid, {"resize_to_max_canvas": True}).to_max_canvas
    nested = {"images_kwargs": {"resize_to_max_canvas": True}}
    assert arguments.applied(grid, nested) == grid
    for kwargs in ({"size": {"height": 40, "width": 50}}, {"do_rescale": False}):
        assert refused(arguments, grid, kwargs)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"return_row_col_info": False},  # the engine fails: it needs the rows and columns
        {"do_pad": False},  # the processor cannot stack tiles of several lengths
        {"tile_size": 100},  # no multiple of the patches
        {"images_kwargs": {"max_tiles": 2}},  # the engine counts by flat ones alone
    ],
)
def test_lfm2_fails_or_counts_otherwise(kwargs: dict[str, Any]) -> None:
    assert refused(accepted("lfm2-vl"), LFM2, kwargs)


def test_lfm2_counts_by_flat_limits() -> None:
    given = {"max_tiles": 2, "return_row_col_info": True}
    assert accepted("lfm2-vl").applied(LFM2, given) == replace(LFM2, max_tiles=2)


def test_granite_fails_on_a_rate_in_a_scope_and_on_one_edge() -> None:
    """vLLM 0.33.0 counts by the model's own configuration, whatever a request says."""
    grid = AnyRes(
        vision_encoder="siglip_vision_model", image_size=384, patch_size=14, select_strategy="full",
        pinpoints=((384, 768), (768, 384)), downsample_rate="4/8",
    )  # fmt: skip
    arguments = accepted("granite4-vision")
    assert arguments.applied(grid, {"size": {"shortest_edge": 50}}) == grid
    for kwargs in ({"images_kwargs": {"downsample_rate": "1/2"}}, {"size": {"longest_edge": 50}}):
        assert refused(arguments, grid, kwargs)


def test_a_partial_size_is_merged_where_the_processor_merges_it() -> None:
    """As `Qwen2VLImageProcessor` and Qwen3-VL's, by vLLM 0.33.0."""
    partial = {"size": {"longest_edge": 50176}}
    assert refused(accepted("qwen2.5-vl"), QWEN, partial)
    merged = accepted("qwen3-vl").applied(QWEN, partial)
    assert (merged.min_pixels, merged.max_pixels) == (3136, 50176)
    aliased = {**partial, "min_pixels": 784}
    changed = accepted("qwen2.5-vl").applied(QWEN, aliased)
    assert (changed.min_pixels, changed.max_pixels) == (784, 50176)


VIDEO_GRID = FramePairs(
    patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056, sampler=Sampler.QWEN2_VL
)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"fps": 4.0, "num_frames": 8},
        {"videos_kwargs": {"fps": 1}},
        {"max_frames": 4, "max_pixels": 50176, "min_frames": 8},
        {"do_rescale": False, "videos_kwargs": {"do_normalize": False, "resample": 3}},
        {"made_up": 1, "use_audio_in_video": False},
    ],
)
def test_a_video_processor_ignores_what_it_does_not_read(kwargs: dict[str, Any]) -> None:
    arguments = accepted("internvl", Modality.VIDEO)
    assert arguments.applied(VIDEO_GRID, kwargs) == VIDEO_GRID


@pytest.mark.parametrize(
    "kwargs",
    [
        {"initial_shift": 1},
        {"max_frames": "4"},
        {"size": {"height": 224, "width": 224}},
        {"videos_kwargs": {"max_frames": 4}},
        {"videos_kwargs": {"crop_size": {"height": 32, "width": 32}}},
        {"do_rescale": False, "images_kwargs": {"do_rescale": False}},
        {"use_audio_in_video": True},
        {"tokenizer_file": True},
        {"videos_kwargs": []},
    ],
)
def test_a_video_processor_fails_on_what_it_reads_or_checks(kwargs: dict[str, Any]) -> None:
    assert refused(accepted("internvl", Modality.VIDEO), VIDEO_GRID, kwargs)


@pytest.mark.parametrize(
    "family", ["qwen2-vl", "qwen2.5-omni", "qwen3-vl", "qwen3-omni", "minimax-m3"]
)
def test_the_limits_of_frames_are_those_of_the_processor_s_file(family: str) -> None:
    """vLLM 0.33.0 hands them to the processor, which samples by its own."""
    arguments = accepted(family, Modality.VIDEO)
    assert arguments.applied(VIDEO_GRID, {"min_frames": 8, "max_frames": 4}) == VIDEO_GRID
    assert refused(arguments, VIDEO_GRID, {"max_frames": "4"})


def test_whatever_some_video_processor_reads_is_refused_of_one_that_is_not_known() -> None:
    for name in ("max_frames", "max_soft_tokens", "total_pixels", "fps", "size"):
        assert refused(Arguments(Modality.VIDEO), VIDEO_GRID, {name: 4}), name
