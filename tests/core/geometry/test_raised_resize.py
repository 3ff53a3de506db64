"""The resize of Dots3 Note."""

from __future__ import annotations

from mmroute import ImageSize
from mmroute.geometry.grids.smart_resize import SmartResize


def test_only_an_image_that_was_enlarged_is_shrunk_a_second_time() -> None:
    """A request may give a largest area below the smallest.

    vLLM 0.33.0 was asked of 187x7. The other follows from its code: a small square is enlarged.
    """
    grid = SmartResize(14, 2, 12544, 3136, least_rounded=1, shrinks_again=True)
    assert grid.count(ImageSize(187, 7))[:2] == (1, 10)
    assert grid.count(ImageSize(30, 30))[:2] == (2, 2)
