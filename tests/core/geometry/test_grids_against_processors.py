"""The second oracle: the image processors the models ship with, over random sizes.

Their own size arithmetic is called, so no picture has to be made. Phi-3-vision's processor is
remote code and is not installed here; its counts are proved by the vectors alone.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_models import SMALL_MODELS

from mmroute import ImageSize
from mmroute.errors import InexactError
from mmroute.geometry import ModelContext
from mmroute.geometry.grid import AnyGrid
from mmroute.geometry.grids.anyres import AnyRes
from mmroute.geometry.grids.closest_tiles import ClosestTiles
from mmroute.geometry.grids.fit_square import FitSquare
from mmroute.geometry.grids.long_edge_tiles import LongEdgeTiles
from mmroute.geometry.grids.pan_and_scan import PanAndScan
from mmroute.geometry.grids.patch_budget import PatchBudget
from mmroute.geometry.grids.slices import Slices
from mmroute.geometry.grids.smart_resize import CodedRows, SmartResize
from mmroute.geometry.grids.token_budget import TokenBudget

with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter("ignore")
    from mistral_common.tokens.tokenizers.image import ImageConfig, ImageEncoder, SpecialImageIDs
    from transformers.models.emu3.image_processing_emu3 import smart_resize as emu3_resize
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma4.image_processing_pil_gemma4 import (
        get_aspect_ratio_preserving_size,
    )
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
    from transformers.models.glm5_next.image_processing_pil_glm5_next import (
        Glm5NextImageProcessorPil,
    )
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
    from transformers.models.granite4_vision.processing_granite4_vision import (
        Granite4VisionProcessor,
    )
    from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import (
        HunYuanVLImageProcessorPil,
    )
    from transformers.models.idefics3.image_processing_pil_idefics3 import (
        Idefics3ImageProcessorPil,
    )
    from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
    from transformers.models.llava_onevision.processing_llava_onevision import (
        LlavaOnevisionProcessor,
    )
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import (
        PaddleOCRVLImageProcessorPil,
    )
    from transformers.models.pixtral.image_processing_pil_pixtral import (
        get_resize_output_image_size,
    )
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

# None of these asks how long the context is.
CONTEXT = ModelContext(0, lambda _text: np.array([], dtype=np.uint32))


def for_many_sizes(
    *examples: tuple[int, int], longest: int = 6000
) -> Callable[[Callable[[int, int], None]], None]:
    """Calls a check with height and width of the examples, and of many sizes of any magnitude."""

    def run(check: Callable[[int, int], None]) -> None:
        draw = random.Random(2026)
        for height, width in examples:
            check(height, width)
        for _ in range(1500):
            check(draw.randint(1, longest), draw.randint(1, longest))
            check(round(longest ** draw.random()), round(longest ** draw.random()))

    return run


def count(grid: AnyGrid, image: ImageSize) -> int | None:
    """The number of feature positions, or None where the image is refused."""
    try:
        (found,) = grid.counts([image], CONTEXT)
    except InexactError:
        return None
    return found.total


@pytest.mark.parametrize(
    ("patch", "lowest", "highest"),
    [(14, 3136, 12845056), (16, 65536, 16777216), (14, 3136, 1003520)],
)
def test_smart_resize(patch: int, lowest: int, highest: int) -> None:
    size = {"shortest_edge": lowest, "longest_edge": highest}
    processor = Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, size=size)
    grid = SmartResize(patch, 2, lowest, highest)

    @for_many_sizes((720, 1280), (1400, 7), (1407, 7))
    def agrees(height: int, width: int) -> None:
        try:
            expected = processor.get_number_of_image_patches(height, width) // 4
        except ValueError:
            expected = None
        assert count(grid, ImageSize(width, height)) == expected


@pytest.mark.parametrize("factor", [8, 20])
def test_coded_rows(factor: int) -> None:
    """But where the processor takes the height for a number of channels."""
    grid = CodedRows(factor, 1, 4096, 65536)

    @for_many_sizes((720, 1280), (1400, 7), (1407, 7), (1, 1))
    def agrees(height: int, width: int) -> None:
        try:
            rows, columns = (side // 8 for side in emu3_resize(height, width, factor, 4096, 65536))
        except ValueError:
            assert count(grid, ImageSize(width, height)) is None
        else:
            assert count(grid, ImageSize(width, height)) == rows * (columns + 1)


@pytest.mark.parametrize("arguments", [(14, 3136, 3136, 1003520), (14, 1024, 1 << 40, 1 << 41)])
def test_a_resize_that_needs_gigabytes_is_refused(arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(InexactError, match="for which an engine hardly has the memory"):
        SmartResize(*arguments).count(ImageSize(224, 37))


def _areas(lowest: int, highest: int) -> dict[str, int]:
    return {"shortest_edge": lowest, "longest_edge": highest}


@pytest.mark.parametrize(
    ("processor", "grid"),
    [
        (
            Glm4vImageProcessorPil(patch_size=14, merge_size=2, size=_areas(12544, 9633792)),
            SmartResize(14, 2, 12544, 9633792, frames=2, short_sides="enlarged"),
        ),
        (
            PaddleOCRVLImageProcessorPil(patch_size=14, merge_size=2, size=_areas(147456, 2359296)),
            SmartResize(14, 2, 147456, 2359296, short_sides="enlarged_in_turn", least_shrunk=0),
        ),
        (
            Glm5NextImageProcessorPil(patch_size=14, merge_size=2),
            TokenBudget(14, 2, 1, 16, 8000),
        ),
    ],
    ids=["glm", "paddleocr", "glm-5.3"],
)
def test_resizes_of_their_own(processor: Any, grid: Any) -> None:
    @for_many_sizes((27, 5600), (5, 1000), (5, 1001), (1, 1), (6000, 6000))
    def agrees(height: int, width: int) -> None:
        try:
            expected = processor.get_number_of_image_patches(height, width, {}) // 4
        except ValueError:
            expected = None
        assert count(grid, ImageSize(width, height)) == expected


def _anyres_processor(kind: Any, name: str, tiles: str | None) -> tuple[Any, AnyRes]:
    config = SMALL_MODELS[name]()["config.json"]
    vision, pinpoints = config["vision_config"], config["image_grid_pinpoints"]
    side, patch = vision["image_size"], vision["patch_size"]
    clip = vision["model_type"] == "clip_vision_model"
    processor = kind.__new__(kind)
    processor.image_processor = SimpleNamespace(
        image_grid_pinpoints=pinpoints, size={"height": side, "width": side}
    )
    processor.patch_size = patch
    processor.num_additional_image_tokens = int(clip)
    processor.num_image_tokens = (side // patch) ** 2
    processor.vision_aspect_ratio = tiles
    grid = AnyRes(
        vision_encoder=vision["model_type"],
        image_size=side,
        patch_size=patch,
        select_strategy=config["vision_feature_select_strategy"],
        pinpoints=tuple(map(tuple, pinpoints)),
        max_tiles=9 if tiles else None,
    )
    return processor, grid


@pytest.mark.parametrize(
    ("kind", "name", "tiles"),
    [
        (LlavaNextProcessor, "small-llava-next", None),
        (LlavaOnevisionProcessor, "small-llava-onevision", "anyres_max_9"),
    ],
)
def test_anyres(kind: Any, name: str, tiles: str | None) -> None:
    processor, grid = _anyres_processor(kind, name, tiles)
    side = grid.image_size

    @for_many_sizes((5, 6000))
    def agrees(height: int, width: int) -> None:
        expected = processor._get_number_of_features(height, width, side, side)
        default = grid.select_strategy == "default"
        assert count(grid, ImageSize(width, height)) == expected - default


@pytest.mark.parametrize(("limit", "patch", "merge"), [(1024, 16, 1), (1540, 14, 2)])
def test_patch_rows_of_transformers(limit: int, patch: int, merge: int) -> None:
    grid = FitSquare(limit, patch, merge)
    step = (patch * merge, patch * merge)

    @for_many_sizes((1, 6000))
    def agrees(height: int, width: int) -> None:
        picture = SimpleNamespace(shape=(3, height, width), size=(width, height))
        expected = None
        if min(height, width) * limit >= max(height, width) or max(height, width) <= limit:
            rows, columns = _pixtral_grid(picture, (limit, limit), step)
            expected = rows * columns
        assert count(grid, ImageSize(width, height)) == expected


def _pixtral_grid(picture: Any, limit: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    _, height, width = picture.shape
    # A view of one zero: the size counts, and no memory is needed for it.
    pixels = np.broadcast_to(np.zeros((), dtype=np.uint8), (height, width, 3))
    new_height, new_width = get_resize_output_image_size(
        pixels, size=limit, patch_size=step, input_data_format="channels_last"
    )
    return new_height // step[0], new_width // step[1]


@pytest.mark.parametrize(("limit", "patch", "merge"), [(1024, 16, 1), (1540, 14, 2)])
def test_patch_rows_of_mistral_common(limit: int, patch: int, merge: int) -> None:
    encoder = ImageEncoder(ImageConfig(patch, limit, merge), SpecialImageIDs(1, 2, 3))
    grid = FitSquare(limit, patch, merge, rounding="half_even")

    @for_many_sizes((1, 6000))
    def agrees(height: int, width: int) -> None:
        picture: Any = SimpleNamespace(size=(width, height))
        columns, rows = encoder._image_to_num_tokens(picture)
        assert grid.count(ImageSize(width, height))[:2] == (rows, columns)


def test_pan_and_scan() -> None:
    processor = Gemma3ImageProcessorPil()
    grid = PanAndScan(4, True, 256, 4, 1.2)

    @for_many_sizes((500, 1500), longest=3000)
    def agrees(height: int, width: int) -> None:
        pixels = np.broadcast_to(np.zeros((), dtype=np.uint8), (3, height, width))
        crops = processor.pan_and_scan(pixels, 256, 4, 1.2)
        assert grid.num_crops(ImageSize(width, height)) == len(crops)


def test_smart_resize_with_row_ends() -> None:
    processor = HunYuanVLImageProcessorPil()
    grid = SmartResize(16, 2, 262144, 4194304, row_ends=True, frame=True)

    @for_many_sizes()
    def agrees(height: int, width: int) -> None:
        try:
            rows, columns = processor.get_number_of_image_patches(height, width)
            expected = rows // 2 * (columns // 2 + 1) + 2
        except ValueError:
            expected = None
        assert count(grid, ImageSize(width, height)) == expected


def test_anyres_on_a_coarser_grid() -> None:
    pinpoints = ((384, 384), (384, 768), (768, 384), (768, 768), (384, 1152), (1152, 384))
    processor = Granite4VisionProcessor.__new__(Granite4VisionProcessor)
    processor.image_processor = SimpleNamespace(image_grid_pinpoints=pinpoints)
    processor.patch_size = 16
    processor.num_additional_image_tokens = 0
    processor.downsample_rate = "4/8"
    grid = AnyRes("siglip_vision_model", 384, 16, "full", pinpoints, downsample_rate="4/8")

    @for_many_sizes()
    def agrees(height: int, width: int) -> None:
        expected = processor._get_number_of_features(height, width, 384, 384)
        assert count(grid, ImageSize(width, height)) == expected


@pytest.mark.parametrize(("longest", "tile"), [(1456, 364), (2048, 512), (700, 364), (5000, 512)])
def test_row_column_tiles(longest: int, tile: int) -> None:
    size, max_size = {"longest_edge": longest}, {"longest_edge": tile}
    processor = Idefics3ImageProcessorPil(size=size, max_image_size=max_size)
    grid = LongEdgeTiles(64, longest, tile, True)

    @for_many_sizes((1457, 1456), (6000, 1))
    def agrees(height: int, width: int) -> None:
        _, rows, columns = processor.get_number_of_image_patches(height, width)
        assert grid.grid(ImageSize(width, height)) == (rows, columns)


@pytest.mark.parametrize("most", [9, 4, 16])
def test_slices(most: int) -> None:
    processor = MiniCPMV4_6ImageProcessorPil()
    grid = Slices(448, 14, most, 448, "16x")

    @for_many_sizes((448, 449))
    def agrees(height: int, width: int) -> None:
        size = (height, width)
        sliced = processor.get_sliced_grid(size, most, 448)
        whole = processor.find_best_resize(size, 448, 14, allow_upscale=sliced is None)
        expected = [whole[0] * whole[1] // (14 * 14 * 16)]
        if sliced is not None:
            refined = processor.get_refine_size(size, sliced, 448, 14, allow_upscale=True)
            part = (refined[0] // sliced[0]) * (refined[1] // sliced[1]) // (14 * 14 * 16)
            expected += [part] * (sliced[0] * sliced[1])
        found = grid.count(ImageSize(width, height))
        assert [found.whole, *[found.tile] * (found.rows * found.columns)] == expected


@pytest.mark.parametrize(("lowest", "most"), [(1, 12), (1, 6), (2, 9), (1, 1)])
def test_closest_grid(lowest: int, most: int) -> None:
    processor = GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448}, min_patches=lowest, max_patches=most
    )
    grid = ClosestTiles(448, lowest, most, tokens_per_tile=1)

    @for_many_sizes((448, 896), (896, 1345))
    def agrees(height: int, width: int) -> None:
        tiles = processor.get_number_of_image_patches(height, width, {"crop_to_patches": True})
        assert count(grid, ImageSize(width, height)) == tiles


@pytest.mark.parametrize("budget", [70, 280, 1120])
def test_patch_budget(budget: int) -> None:
    """Where no side is shorter than a unit; of thinner images the engine has its own count."""
    grid = PatchBudget(16, 3, budget)

    @for_many_sizes((480, 640), (672, 960))
    def agrees(height: int, width: int) -> None:
        new_height, new_width = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
        if min(new_height, new_width) > 48:
            tokens = new_height * new_width // 48**2
            assert count(grid, ImageSize(width, height)) == tokens
