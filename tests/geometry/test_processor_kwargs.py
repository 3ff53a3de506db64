"""What a request may say to a processor that has images alone to process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast, Qwen2Config

from mmroute.errors import InexactError, Reason
from mmroute.geometry import Overrides
from mmroute.geometry.anyres import AnyRes
from mmroute.geometry.canvas_tiles import CanvasTiles
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.navit import Navit
from mmroute.geometry.processor_kwargs import check_unread, read_kwargs, read_video_kwargs
from mmroute.geometry.smart_resize import SmartResize
from mmroute.geometry.thumbnail_tiles import ThumbnailTiles
from mmroute.geometry.timed_frames import TimedFrames
from mmroute.geometry.video_resize import VideoResize

LFM2 = ThumbnailTiles(
    1, tile_size=512, patch_size=16, downsample_factor=2, min_tiles=2, max_tiles=10,
    min_image_tokens=64, max_image_tokens=256, max_pixels_tolerance=2.0, thumbnail=True, split=True,
    image="<image>", start="<start>", end="<end>", thumbnail_tag="<small>", tile="<{row}_{col}>",
)  # fmt: skip


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
    assert read_kwargs(kwargs) == {}


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
        {"__class__": 1},
    ],
)
def test_a_processor_checks_what_it_would_need_for_videos(kwargs: dict[str, Any]) -> None:
    assert _refused(read_kwargs, kwargs) is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_no_name_that_a_configuration_or_tokenizer_has_passes() -> None:
    for name in {*dir(Qwen2Config), *dir(PreTrainedTokenizerFast)}:
        assert _refused(read_kwargs, {name: [1]}) is Reason.UNSUPPORTED_PROCESSOR_KWARGS, name


def test_a_geometry_says_what_its_video_processor_knows_beside_that() -> None:
    kwargs = Overrides({"videos_kwargs": {"max_pixels": 50176}}, {})
    geometry = SmartResize(1, patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056)
    assert geometry.with_overrides(kwargs) == geometry


@pytest.mark.parametrize(("value", "passes"), [(False, True), (True, False), (None, False)])
def test_frames_are_not_chosen_again(value: object, passes: bool) -> None:
    """vLLM 0.33.0 fails on true where its frames are not those of a whole video."""
    for kwargs in ({"do_sample_frames": value}, {"videos_kwargs": {"do_sample_frames": value}}):
        if passes:
            assert read_video_kwargs(kwargs) == {"do_sample_frames": value}
        else:
            assert _refused(read_video_kwargs, kwargs) is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_one_of_two_switches_that_must_be_equal() -> None:
    geometry = Navit(1, patch_size=14, merge_size=2, max_patches=16384, max_patches_per_side=512)
    kwargs = Overrides({"images_kwargs": {"do_rescale": True}}, {})
    assert _refused(geometry.with_overrides, kwargs) is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_even_processors_that_read_no_kwargs_fail_on_a_second_argument_of_one_name() -> None:
    check_unread({"images_kwargs": {"made_up": 1}})
    refused = _refused(check_unread, {"images_kwargs": {"images": 64}})
    assert refused is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_frames_that_are_not_taken_again_must_be_a_number() -> None:
    geometry = VideoResize(
        video_token_id=1, patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056,
        sampler=Sampler.QWEN2_VL,
    )  # fmt: skip
    kwargs = Overrides({"num_frames": 0.5}, {})
    assert _refused(geometry.with_overrides, kwargs) is Reason.UNSUPPORTED_PROCESSOR_KWARGS
    flat, inside = Overrides({"max_pixels": 50176}, {}), {"videos_kwargs": {"max_pixels": 50176}}
    omni = replace(geometry, reaches_images=True)
    assert geometry.with_overrides(flat) == geometry.with_overrides(Overrides(inside, {}))
    assert omni.with_overrides(Overrides(inside, {})).max_pixels == 50176
    assert _refused(omni.with_overrides, flat) is Reason.UNSUPPORTED_PROCESSOR_KWARGS


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
    geometry = TimedFrames(
        fill=(1,), before=(), after=(), first_time="", next_time="", patch_size=16, pooling_size=3,
        max_soft_tokens=70, sampler=Sampler.OPENCV,
    )  # fmt: skip
    for told in ({"max_soft_tokens": 140}, {"videos_kwargs": {"max_soft_tokens": 448}}):
        assert geometry.with_overrides(Overrides(told, {})) == geometry
    refused = _refused(geometry.with_overrides, Overrides(kwargs, {}))
    assert refused is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_llama_4_reads_a_flat_switch_alone_and_fails_on_what_it_checks() -> None:
    """vLLM 0.33.0 counts by the flat switch. A nested one reaches the processor only."""
    geometry = CanvasTiles(
        1, 2, 3, 4, 5, 6, tile_size=336, patch_size=14, pixel_shuffle_ratio=0.5, max_tiles=16
    )
    flat, nested = (
        {"resize_to_max_canvas": True},
        {"images_kwargs": {"resize_to_max_canvas": True}},
    )
    assert geometry.with_overrides(Overrides(flat, {})).to_max_canvas
    assert geometry.with_overrides(Overrides(nested, {})) == geometry
    for kwargs in ({"size": {"height": 40, "width": 50}}, {"do_rescale": False}):
        refused = _refused(geometry.with_overrides, Overrides(kwargs, {}))
        assert refused is Reason.UNSUPPORTED_PROCESSOR_KWARGS


@pytest.mark.parametrize(
    "kwargs",
    [
        {"return_row_col_info": False},  # the engine fails: it needs the rows and columns
        {"do_pad": False},  # the processor cannot stack tiles of several lengths
        {"use_thumbnail": False},  # the engine still counts one
        {"tile_size": 100},  # no multiple of the patches
        {"images_kwargs": {"max_tiles": 2}},  # the engine counts by flat ones alone
    ],
)
def test_lfm2_fails_or_counts_otherwise(kwargs: dict[str, Any]) -> None:
    refused = _refused(LFM2.with_overrides, Overrides(kwargs, {}))
    assert refused is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_lfm2_counts_by_flat_limits() -> None:
    given = Overrides({"max_tiles": 2, "return_row_col_info": True}, {})
    assert LFM2.with_overrides(given) == replace(LFM2, max_tiles=2)


def test_granite_fails_on_a_rate_in_a_scope_and_on_one_edge() -> None:
    """vLLM 0.33.0 counts by the model's own configuration, whatever a request says."""
    geometry = AnyRes(
        1, vision_encoder="siglip_vision_model", image_size=384, patch_size=14,
        select_strategy="full", pinpoints=((384, 768), (768, 384)),
        ignored_size="shortest_edge", downsample_rate="4/8",
    )  # fmt: skip
    assert geometry.with_overrides(Overrides({"size": {"shortest_edge": 50}}, {})) == geometry
    for kwargs in ({"images_kwargs": {"downsample_rate": "1/2"}}, {"size": {"longest_edge": 50}}):
        refused = _refused(geometry.with_overrides, Overrides(kwargs, {}))
        assert refused is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def _refused(call: Any, *arguments: Any) -> Reason:
    with pytest.raises(InexactError) as refusal:
        call(*arguments)
    return refusal.value.reason
