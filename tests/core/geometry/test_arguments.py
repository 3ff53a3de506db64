"""What a request may say to a processor, and what of the counts it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmroute.errors import InexactError, Reason
from mmroute.families.matching import known_families
from mmroute.geometry.arguments import Argument, Arguments, Kind, Where
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grids.frame_groups import FramePairs
from mmroute.geometry.grids.long_edge_tiles import LongEdgeTiles
from mmroute.geometry.grids.patch_budget import BudgetedFrames
from mmroute.geometry.grids.smart_resize import SmartResize
from mmroute.geometry.grids.thumbnail_tiles import ThumbnailTiles
from mmroute.requests.items import Modality

QWEN = SmartResize(patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056)
VIDEO_GRID = FramePairs(
    patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12845056, sampler=Sampler.QWEN2_VL
)
LFM2 = ThumbnailTiles(
    tile_size=512, patch_size=16, downsample_factor=2, min_tiles=2, max_tiles=10,
    min_image_tokens=64, max_image_tokens=256, max_pixels_tolerance=2.0, thumbnail=True, split=True,
)  # fmt: skip
EDGES = {"shortest_edge": "min_pixels", "longest_edge": "max_pixels"}
BOTH = {"shortest_edge": 784, "longest_edge": 50176}


def accepted(family: str, modality: Modality = Modality.IMAGE) -> Arguments:
    """What the processors of a family take, by its spec."""
    (spec,) = (spec for spec in known_families() if spec.family == family)
    return Arguments(modality, {one: media.arguments for one, media in spec.media.items()})


def of_images(**named: Argument) -> Arguments:
    return Arguments(Modality.IMAGE, {Modality.IMAGE: named})


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
        {"made_up": 1},
        {"resize": 1},  # the method of a processor
        {"processor_cls": None},  # a parameter of its loader
        {"images_kwargs": {"made_up": 1}},
        {"videos_kwargs": {"made_up": 1}},
        {"audio_kwargs": {"made_up": 1}},
        {"text_kwargs": {"made_up": 1}},
        {"images_kwargs": None},
        {"videos_kwargs": []},
    ],
)
def test_what_no_spec_lists_is_refused(kwargs: dict[str, Any]) -> None:
    for spec in known_families():
        for modality in spec.media:
            assert refused(accepted(spec.family, modality), QWEN, kwargs), spec.family


def test_the_refusal_names_the_argument() -> None:
    for kwargs in ({"made_up": 1}, {"images_kwargs": {"made_up": 1}}):
        with pytest.raises(InexactError, match="made_up"):
            accepted("qwen2.5-vl").applied(QWEN, kwargs)


def test_an_argument_inside_the_object_of_its_modality_wins() -> None:
    arguments = accepted("qwen2.5-vl")
    kwargs = {"max_pixels": 784, "images_kwargs": {"max_pixels": 50176}}
    assert arguments.applied(QWEN, kwargs) == replace(QWEN, max_pixels=50176)


def test_the_objects_of_other_modalities_change_nothing() -> None:
    kwargs = {"videos_kwargs": {"fps": 2.0, "max_pixels": 50176}}
    assert accepted("qwen2.5-vl").applied(QWEN, kwargs) == QWEN
    assert refused(accepted("qwen2.5-vl"), QWEN, {"videos_kwargs": {"fps": "fast"}})
    # The engine gives the size's edges names of their own, and drops a flat one that is repeated.
    edges = {"max_pixels": 784, "videos_kwargs": {"size": BOTH}}
    assert refused(accepted("qwen3-vl"), QWEN, edges)
    without_images = accepted("llava-next-video", Modality.VIDEO)
    assert refused(without_images, VIDEO_GRID, {"images_kwargs": {"max_pixels": 50176}})


def test_an_argument_of_one_place_is_refused_in_the_other() -> None:
    flat = Argument(sets=("max_pixels",), where=Where.FLAT)
    inside = Argument(sets=("min_pixels",), where=Where.INSIDE)
    arguments = of_images(max_pixels=flat, min_pixels=inside)
    assert arguments.applied(QWEN, {"max_pixels": 784}).max_pixels == 784
    assert arguments.applied(QWEN, {"images_kwargs": {"min_pixels": 784}}).min_pixels == 784
    for kwargs in (
        {"min_pixels": 784},
        {"images_kwargs": {"max_pixels": 784}},
        {"max_pixels": 784, "images_kwargs": {"min_pixels": 784}},
    ):
        assert refused(arguments, QWEN, kwargs)
    assert refused(of_images(max_pixels=flat), QWEN, {"images_kwargs": {}})


@pytest.mark.parametrize(
    ("argument", "taken", "wrong"),
    [
        (Argument(), [1], [0, True, 1.0, "1", None, 1 << 63]),
        (Argument(most=4), [4], [5]),
        (Argument(kind=Kind.SWITCH), [True], [None, 1]),
        (Argument(kind=Kind.NULLABLE_SWITCH), [None, False], [0]),
        (Argument(kind=Kind.FLOAT), [-1.0], [1]),
        (Argument(kind=Kind.POSITIVE_FLOAT), [0.5], [0.0, 1]),
        (Argument(kind=Kind.NUMBER), [0.5, 1], [0, True, "1"]),
        (Argument(one_of=(70, "16x")), [70, "16x"], [70.0, 140]),
        (Argument(edges=EDGES), [BOTH], [{}, {"longest_edge": 9}, {**BOTH, "x": 1}, 9]),
        (Argument(edges=EDGES, partial=True), [{"longest_edge": 9}], [{}, {"x": 1}]),
        (Argument(edges={"longest_edge": "max_pixels"}), [{"longest_edge": 9}], [BOTH]),
    ],
)
def test_a_value_of_another_kind_is_refused(
    argument: Argument, taken: list[object], wrong: list[object]
) -> None:
    arguments = of_images(a=argument)
    for value in taken:
        assert not refused(arguments, QWEN, {"a": value})
    for value in wrong:
        assert refused(arguments, QWEN, {"a": value})


def test_the_edges_of_a_size_are_its_numbers() -> None:
    assert accepted("qwen2.5-vl").applied(QWEN, {"size": BOTH}) == replace(
        QWEN, min_pixels=784, max_pixels=50176
    )
    for family, partial in (("qwen2.5-vl", False), ("qwen3-vl", True)):
        kwargs = {"size": {"longest_edge": 50176}}
        assert refused(accepted(family), QWEN, kwargs) is not partial
    assert accepted("qwen3-vl").applied(QWEN, kwargs) == replace(QWEN, max_pixels=50176)


def test_two_arguments_for_one_number_are_refused() -> None:
    for family in ("qwen2.5-vl", "qwen3-vl"):
        assert refused(accepted(family), QWEN, {"size": BOTH, "max_pixels": 784})
        nested = {"size": BOTH, "images_kwargs": {"max_pixels": 784}}
        assert refused(accepted(family), QWEN, nested)


def test_fps_and_num_frames_exclude_each_other_where_both_count() -> None:
    kwargs: dict[str, Any] = {"fps": 4.0, "num_frames": 8}
    ignored = accepted("internvl", Modality.VIDEO)
    assert ignored.applied(VIDEO_GRID, kwargs) == VIDEO_GRID
    arguments = accepted("qwen3-vl", Modality.VIDEO)
    for given in (kwargs, {"fps": 4.0, "videos_kwargs": {"num_frames": 8}}):
        assert refused(arguments, object(), given)


def test_numbers_that_make_no_grid_are_refused() -> None:
    tile_size = {"tile_size": 100}  # no multiple of the patches
    assert refused(accepted("lfm2-vl"), LFM2, tile_size)


def test_engines_that_count_by_flat_arguments_alone() -> None:
    """vLLM 0.33.0 counts by these, and its processor by those inside."""
    assert accepted("lfm2-vl").applied(LFM2, {"max_tiles": 2}) == replace(LFM2, max_tiles=2)
    assert refused(accepted("lfm2-vl"), LFM2, {"images_kwargs": {"max_tiles": 2}})
    tiles = LongEdgeTiles(tokens_per_tile=64, longest_edge=1820, tile_size=364, split=True)
    given = {"size": {"longest_edge": 728}, "do_image_splitting": False}
    changed = replace(tiles, longest_edge=728, split=False)
    assert accepted("idefics3").applied(tiles, given) == changed


@pytest.mark.parametrize(("value", "passes"), [(False, True), (True, False), (None, False)])
def test_frames_are_not_chosen_again(value: object, passes: bool) -> None:
    """vLLM 0.33.0 fails on true where its frames are not those of a whole video."""
    arguments = accepted("internvl", Modality.VIDEO)
    for kwargs in ({"do_sample_frames": value}, {"videos_kwargs": {"do_sample_frames": value}}):
        assert refused(arguments, object(), kwargs) is not passes


def test_frames_of_an_omni_model_have_limits_inside_alone() -> None:
    flat, inside = {"max_pixels": 50176}, {"videos_kwargs": {"max_pixels": 50176}}
    arguments = accepted("qwen2.5-vl", Modality.VIDEO)
    assert arguments.applied(VIDEO_GRID, flat) == arguments.applied(VIDEO_GRID, inside)
    omni = accepted("qwen2.5-omni", Modality.VIDEO)
    assert omni.applied(VIDEO_GRID, inside).max_pixels == 50176
    assert refused(omni, VIDEO_GRID, flat)


def test_gemma_4_knows_few_budgets_of_videos() -> None:
    """vLLM 0.33.0 fails on others, and counts by its own budget whatever it is told."""
    grid = BudgetedFrames(patch_size=16, pooling_size=3, max_soft_tokens=70, sampler=Sampler.OPENCV)
    arguments = accepted("gemma-4", Modality.VIDEO)
    assert arguments.applied(grid, {"max_soft_tokens": 140}) == grid
    for kwargs in (
        {"max_soft_tokens": 448},
        {"max_soft_tokens": 448, "videos_kwargs": {"max_soft_tokens": 70}},
    ):
        assert refused(arguments, grid, kwargs)


def test_a_family_s_own_processor_takes_none_of_its_class() -> None:
    assert accepted("dots-ocr").named
    assert not accepted("opencua").named
