"""Single rules of grids and layouts, and the engine's encoder cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmroute import AudioLength, ImageSize, InexactError, Normalizer, Reason
from mmroute.geometry import CachePlan, Count, ModelContext
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grid import AnyGrid, max_embeds
from mmroute.geometry.grids.closest_tiles import ClosestTiles
from mmroute.geometry.grids.fixed_frames import FixedFrames
from mmroute.geometry.grids.frame_groups import FramePairs, ResizedVideo
from mmroute.geometry.grids.minimax_resize import MiniMaxVideo
from mmroute.geometry.grids.padded_audio import PaddedAudio
from mmroute.geometry.grids.shared_budget import SharedBudget
from mmroute.geometry.grids.smart_resize import SmartResize
from mmroute.geometry.grids.strided_audio import MelFrames
from mmroute.geometry.layout import Around
from mmroute.geometry.layouts.tile_text import SizedText, Tiles, TileText
from mmroute.requests.items import Modality, VideoSize
from mmroute.token_ids import TokenIds

KEPT = FramePairs(
    patch_size=14,
    merge_size=2,
    min_pixels=3136,
    max_pixels=12544,
    resize=False,
    sampler=Sampler.QWEN2_VL,
)


def test_frames_that_keep_their_size_count_above_the_limits_too() -> None:
    assert KEPT.count(VideoSize(252, 168, 22, 4)).total == 5 * 9 * 6  # as vLLM 0.33.0 counts


@pytest.mark.parametrize("size", [(60, 48), (56, 27), (30, 28)])
def test_frames_that_keep_a_size_of_half_tokens_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InexactError, match="do_resize is false") as caught:
        KEPT.count(VideoSize(*size, 5, 4))
    assert caught.value.reason is Reason.IMAGE_REFUSED


VOXTRAL = PaddedAudio(16_000, 12.5, 30.0, 160)


def count(samples: int, rate: int, channels: int = 1) -> int:
    return VOXTRAL.count(AudioLength(samples, rate, channels=channels)).total


def test_every_started_chunk_counts_whole() -> None:
    assert count(1, 16_000) == count(480_000, 16_000) == count(1_000_000, 44_100) == 375
    assert count(480_001, 16_000) == count(1_330_000, 44_100) == 750


@pytest.mark.parametrize(("samples", "rate"), [(1_323_000, 44_100), (240_000, 8_000), (1, 48_000)])
def test_after_resampling_the_end_of_a_chunk_is_not_certain(samples: int, rate: int) -> None:
    with pytest.raises(InexactError, match="may count differently") as caught:
        count(samples, rate)
    assert caught.value.reason is Reason.AUDIO_NOT_PREDICTABLE


def test_a_file_that_libsndfile_does_not_read_is_refused() -> None:
    with pytest.raises(InexactError, match="libsndfile") as caught:
        VOXTRAL.count(AudioLength(16_000, 16_000, needs_ffmpeg=True))
    assert caught.value.reason is Reason.ITEM_REFUSED


def test_more_than_one_channel_is_refused_as_by_mistral_common() -> None:
    with pytest.raises(InexactError, match="takes one channel, not 2") as caught:
        count(16_000, 16_000, channels=2)
    assert caught.value.reason is Reason.ITEM_REFUSED


def test_only_an_image_that_was_enlarged_is_shrunk_a_second_time() -> None:
    """A request may give a largest area below the smallest.

    vLLM 0.33.0 was asked of 187x7. The other follows from its code: a small square is enlarged.
    """
    grid = SmartResize(14, 2, 12544, 3136, least_rounded=1, shrinks_again=True)
    assert grid.count(ImageSize(187, 7))[:2] == (1, 10)
    assert grid.count(ImageSize(30, 30))[:2] == (2, 2)


GLM = ResizedVideo(
    time_is="whole", patch_size=14, merge_size=2, min_pixels=12544, max_pixels=9633792,
    sampler=Sampler.OPENCV_DYNAMIC,
)  # fmt: skip


@pytest.mark.parametrize(("frames", "tokens"), [(3, 2 * 6), (4, 2 * 6)])
def test_an_odd_number_of_frames_is_made_even_before_the_resize(frames: int, tokens: int) -> None:
    """vLLM 0.33.0's answers for GLM-4.1V."""
    assert GLM.count(VideoSize(64, 32, frames, 1.0)).total == tokens


@pytest.mark.parametrize("height", [1, 3])
def test_a_height_that_is_taken_for_channels_is_refused(height: int) -> None:
    """vLLM 0.33.0 gives Qwen3-VL 46 tokens a pair for 137x1, as for 137x3; by its sides 137."""
    with pytest.raises(InexactError) as caught:
        GLM.count(VideoSize(137, height, 8, 1.0))
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE
    assert GLM.count(VideoSize(height, 137, 8, 1.0)).total


def _characters(text: str) -> TokenIds:
    return np.array([ord(character) for character in text], dtype=np.uint32)


def test_a_feature_position_that_is_several_tokens_is_refused() -> None:
    layout = TileText(fill=(60, 118), tile="Frame{row}: <v", between_rows="\n")
    context = ModelContext(max_model_len=4096, encode=_characters)
    with pytest.raises(InexactError) as refused:
        layout.replacement(Count(8, 1, 256), None, 0, context)
    assert refused.value.reason is Reason.SPECIAL_TOKEN_SPLIT


@pytest.mark.parametrize(
    ("count", "text", "features"),
    [
        (Count(12, 1, whole=12), "[12*1|" + "v" * 24 + "]", "v"),
        (Count(1, 2, whole=1), "[1*2|vvv]", "v"),
        (Count(1, 1, whole=1), "[1*1|vv]", "1"),  # of two as frequent the smaller ID
        (Count(0, 5), "[0*5|]", "*"),
    ],
)
def test_features_are_the_most_frequent_token(count: Count, text: str, features: str) -> None:
    context = ModelContext(max_model_len=4096, encode=_characters)
    placed = SizedText(ord("v"), "[{rows}*{columns}|v]").replacement(count, None, 0, context)
    assert placed.token_ids.tolist() == _characters(text).tolist()
    assert placed.embed_runs is not None
    flags = [flag for flag, length in placed.embed_runs for _ in range(length)]
    assert flags == [character == features for character in text]


@pytest.mark.parametrize(
    ("layout", "cut"),
    [
        (
            Tiles(9, Around((1,), (2,)), Around((3,), (4,)), between_rows=(5,)),
            [1, 9, 2, 1, 9, 2, 5, 1],
        ),
        (Tiles(9, Around((), ()), Around((3,), ()), between_tiles=(6,)), [9, 6, 9, 9, 6, 9, 3, 9]),
        (
            Tiles(
                9, Around((), (1,)), Around((2,), ()), Around((3,), (4,)),
                whole_first=True, opening=(7,), closing=(8,),
            ),
            [7, 3, 9, 4, 9, 1, 9, 1, 9, 1, 9, 1, 8],
        ),
    ],
    ids=["rows", "tiles", "the whole first"],
)  # fmt: skip
def test_words_stand_between_tiles_and_rows_and_not_behind_the_last(
    layout: Tiles, cut: list[int]
) -> None:
    context = ModelContext(max_model_len=4096, encode=_characters)
    found = layout.replacement(Count(2, 2, 1, 1), None, 0, context).token_ids.tolist()
    assert found[: len(cut)] == cut
    assert found.count(9) == 5


def test_an_item_that_is_not_cut_has_words_of_its_own() -> None:
    layout = Tiles(9, Around((), (1,)), Around((2,), ()), Around((3,), (4,)), closing=(8,))
    context = ModelContext(max_model_len=4096, encode=_characters)
    assert layout.replacement(Count(whole=2), None, 0, context).token_ids.tolist() == [2, 9, 9, 8]


LINES = Path(__file__).with_name("processor_counts.jsonl").read_text().splitlines()
META, *MODELS = map(json.loads, LINES)


@pytest.mark.parametrize("recorded", MODELS, ids=lambda recorded: recorded["model"])
def test_features_of_random_sizes(
    recorded: dict[str, Any], normalizer: Callable[[str], Normalizer]
) -> None:
    model, counts = normalizer(recorded["model"]).model, recorded["counts"]
    assert META["transformers"] in model.family.checked.get("transformers", ())
    geometry: Any = model.media[Modality.IMAGE].geometry
    wrong = []
    for width, height, expected in counts:
        try:
            (replacement,) = geometry.replacements([ImageSize(width, height)], model.context)
            found = replacement.num_embeds
        except InexactError:
            found = None
        if found != expected:
            wrong.append((width, height, expected, found))
    assert len(counts) > 100
    assert not wrong


def test_the_counts_differ() -> None:
    """Sizes that all have one count would prove little."""
    assert len(MODELS) > 15
    for recorded in MODELS:
        found = {count for _, _, count in recorded["counts"]}
        assert (len(found) > 2) == (recorded["model"] != "small-gemma-3n")


OMNI = FramePairs(
    patch_size=16, merge_size=2, min_pixels=4, max_pixels=602112, sampler=Sampler.QWEN2_VL
)
INTERNVL = FixedFrames(tokens_per_frame=256, beside_an_image=True, sampler=Sampler.OPENCV)
TILES = ClosestTiles(tile_size=448, min_tiles=1, max_tiles=12, tokens_per_tile=256)
UNCUT = ClosestTiles(
    tile_size=448, min_tiles=1, max_tiles=12, tokens_per_tile=256, planned_cropped=False
)


def minimax(max_pixels: int) -> MiniMaxVideo:
    return MiniMaxVideo(
        patch_size=14, merge_size=2, min_pixels=3136, max_pixels=max_pixels,
        least_rounded=1, least_shrunk=0, sampler=Sampler.MINIMAX_M3_VL,
    )  # fmt: skip


MINIMAX = minimax(451584)


def glm(max_pixels: int) -> ResizedVideo:
    return ResizedVideo(
        time_is="whole", patch_size=14, merge_size=2, min_pixels=12544, max_pixels=max_pixels,
        sampler=Sampler.OPENCV_DYNAMIC, planned_by_context=True,
    )  # fmt: skip


QWEN = SmartResize(patch_size=16, merge_size=2, min_pixels=65536, max_pixels=450000)
BELOW = replace(QWEN, max_pixels=50176)
RECTANGLE = replace(BELOW, planned="rectangle")
GLM46V = replace(glm(100352000), planned_by_context=False)
SIX_TOKENS = CachePlan(131072, encode=lambda _: range(6))
QWEN_VIDEO = ResizedVideo(
    time_is="mean", patch_size=16, merge_size=2, min_pixels=8000, max_pixels=900000,
    sampler=Sampler.QWEN3_VL,
)  # fmt: skip
NEMOTRON = SharedBudget(patch_size=16, min_patches=4, max_patches=1024)
QWEN_AUDIO = MelFrames(
    sampling_rate=16000, hop_length=160, encoder="chunked", planned_encoder="halved"
)


@pytest.mark.parametrize(
    ("grid", "plan", "planned"),
    [
        pytest.param(OMNI, CachePlan(65536, 12544), 62720, id="five pairs fit"),
        pytest.param(OMNI, CachePlan(131072, 12544), 7 * 12544, id="never more than seven"),
        pytest.param(OMNI, CachePlan(4096, 12544), 12544, id="one pair, though none fits"),
        pytest.param(MINIMAX, CachePlan(1 << 20, 576), 144000, id="minimax"),
        pytest.param(MINIMAX, CachePlan(4096, 576), 4032, id="minimax in a short context"),
        pytest.param(minimax(602112), CachePlan(1 << 20, 576), 192000, id="larger than an image"),
        pytest.param(minimax(100000), CachePlan(8192, 121), 8128, id="larger than a square"),
        pytest.param(glm(47040000), CachePlan(65536, 6084), 31974, id="glm-4.1v"),
        pytest.param(glm(100352000), CachePlan(65536, 6084), 59400, id="glm-4.5v"),
        pytest.param(glm(47040000), CachePlan(4096, 6084), 6084, id="glm in a short context"),
        pytest.param(TILES, CachePlan(32768), 3328, id="twelve tiles and a thumbnail"),
        pytest.param(QWEN, CachePlan(32768), 438, id="439 is a prime number"),
        pytest.param(BELOW, CachePlan(32768), 64, id="the smallest area above the largest"),
        pytest.param(RECTANGLE, CachePlan(32768), 64, id="a rectangle below the smallest area"),
        pytest.param(GLM46V, SIX_TOKENS, 66562, id="times of six tokens"),
        pytest.param(replace(GLM46V, planned_pixels=50176), SIX_TOKENS, 2594, id="glm's argument"),
        pytest.param(QWEN_VIDEO, CachePlan(32768), 438, id="a pair of frames"),
        pytest.param(NEMOTRON, CachePlan(8192), 8100, id="nemotron omni"),
        pytest.param(NEMOTRON, CachePlan(300), 289, id="nemotron omni in a short context"),
        pytest.param(QWEN_AUDIO, CachePlan(16384), 750, id="the rule of another encoder"),
        pytest.param(UNCUT, CachePlan(32768), 256, id="an image that is not cut"),
    ],
)
def test_the_engine_plans_with(grid: AnyGrid, plan: CachePlan, planned: int) -> None:
    assert max_embeds(grid, plan) == planned


def test_without_images_their_part_of_the_context_is_free() -> None:
    assert max_embeds(INTERNVL, CachePlan(1024, 256, takes_images=False)) == 1024
