"""What the tests of this room share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from scripted_server import ScriptedServer

from mmroute import Normalizer
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.suite import built_in_cases

Load = Callable[[str], Normalizer]


@pytest.fixture(scope="module")
def suite(normalizer: Load) -> Callable[[str], list[Case]]:
    """The built-in cases of a model, whose media are made once."""
    return functools.cache(lambda name: built_in_cases(normalizer(name).model))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted
