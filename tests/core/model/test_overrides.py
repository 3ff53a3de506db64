"""A request's overrides, which are worked out once for all requests that have the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from mmroute.errors import InexactError
from mmroute.geometry import Geometry, Overrides
from mmroute.model.resolve import resolve_model
from mmroute.requests.items import Modality


@pytest.fixture
def overridden(small_model: Callable[[str], Path]) -> Callable[..., Geometry]:
    """The image geometry of a small Qwen2.5-VL under ``mm_processor_kwargs``."""
    model = resolve_model(str(small_model("small-qwen2.5-vl")))

    def under(**kwargs: Any) -> Geometry:
        return model.media[Modality.IMAGE].overridden(Overrides(kwargs, {}))

    return under


def test_same_overrides_have_one_geometry(overridden: Callable[..., Geometry]) -> None:
    assert overridden(max_pixels=501760) is overridden(max_pixels=501760)
    assert overridden(max_pixels=501760) != overridden(max_pixels=401408)


@pytest.mark.parametrize("alike", [True, 1.0])
def test_equal_values_of_other_types_are_others(
    overridden: Callable[..., Geometry], alike: object
) -> None:
    overridden(images_kwargs={"patch_size": 1})
    with pytest.raises(InexactError):
        overridden(images_kwargs={"patch_size": alike})


def test_what_is_not_kept_counts_alike(overridden: Callable[..., Geometry]) -> None:
    empty = MappingProxyType[str, Any]({})
    assert overridden(max_pixels=501760, images_kwargs=empty) == overridden(max_pixels=501760)
    with pytest.raises(InexactError):
        overridden(made_up="long" * 1000)
