"""Processors that ignore all names but the ones that transformers knows, and fail on these."""

from __future__ import annotations

import pytest

from mmroute.errors import InexactError, Reason
from mmroute.geometry.argument import Argument
from mmroute.geometry.arguments import Arguments, Others
from mmroute.geometry.grids.fixed_count import FixedCount
from mmroute.requests.items import Modality

ARGUMENTS = {
    modality: Arguments(modality, {"count": Argument(sets=("tokens",))}, Others.FOREIGN)
    for modality in Modality
}


@pytest.mark.parametrize("modality", Modality)
@pytest.mark.parametrize("kwargs", [{"unknown": 3}, {"max_tiles": [1]}, {"images_kwargs": {}}])
def test_a_name_that_no_processor_has_is_ignored(modality: Modality, kwargs: object) -> None:
    grid = FixedCount(tokens=5)
    assert ARGUMENTS[modality].applied(grid, kwargs) is grid  # type: ignore[arg-type]  # of any value


@pytest.mark.parametrize("modality", Modality)
@pytest.mark.parametrize(
    "kwargs",
    [
        {"do_resize": True},
        {"fps": 2},
        {"audio_kwargs": {"unknown": 1}},
        {"images_kwargs": {"unknown": 1}},
        {"images_kwargs": 3},
        {"x_token": "a"},
        {"preprocess": 3},
        {"valid_kwargs": []},
        {"cache_dir": "a"},
    ],
)
def test_a_name_of_a_processor_is_refused(modality: Modality, kwargs: dict[str, object]) -> None:
    with pytest.raises(InexactError) as caught:
        ARGUMENTS[modality].applied(FixedCount(tokens=5), kwargs)
    assert caught.value.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_a_listed_name_counts() -> None:
    assert ARGUMENTS[Modality.IMAGE].applied(FixedCount(tokens=5), {"count": 7}).tokens == 7
