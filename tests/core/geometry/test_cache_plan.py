"""The largest item that the engine plans its encoder cache with.

The expected numbers are vLLM 0.33.0's own (``vllm/multimodal/encoder_budget.py``,
``get_mm_max_toks_per_item``) for models with these values.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmroute.geometry import CachePlan
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grid import AnyGrid, max_embeds
from mmroute.geometry.grids.closest_tiles import ClosestTiles
from mmroute.geometry.grids.fixed_frames import FixedFrames
from mmroute.geometry.grids.frame_groups import FramePairs, ResizedVideo
from mmroute.geometry.grids.mel_frames import MelFrames
from mmroute.geometry.grids.minimax_resize import MiniMaxVideo
from mmroute.geometry.grids.shared_budget import SharedBudget
from mmroute.geometry.grids.smart_resize import SmartResize

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
