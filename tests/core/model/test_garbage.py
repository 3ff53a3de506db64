"""The garbage collector while a model is loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mmroute.model.garbage import not_searched


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    found = not_searched()(gc.isenabled)()
    assert not found
    assert gc.isenabled() is enabled


def test_it_is_so_after_an_error() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), not_searched():
        _ = 1 / 0
    assert gc.isenabled()


def test_what_was_made_is_not_walked_again() -> None:
    with not_searched():
        made: list[list[int]] = [[]]
    assert not any(found is made for found in gc.get_objects())
