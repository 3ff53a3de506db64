"""Messages are compared by values, types and the order of keys, compiled and in Python."""

from __future__ import annotations

import sys
import uuid
from copy import deepcopy
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import built
from hypothesis import given
from hypothesis import strategies as st

from mmroute.chat import cache as same_messages
from mmroute.chat.cache import num_same_messages
from tools import needs

pytestmark = [pytest.mark.process, needs("cc", "the extension is optional")]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, -0.0, 1.0, 2**80])
    | st.text("ab\U0001f600", max_size=2),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


class Text(str):
    __slots__ = ()


class Anything:
    def __eq__(self, other: object) -> bool:
        raise AssertionError("no code of a client runs")

    __hash__ = None  # type: ignore[assignment]  # such a value


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(tmp_path_factory.mktemp("extension"), "mmroute.chat.native._messages")


@pytest.fixture(params=["compiled", "python"])
def compare(request: pytest.FixtureRequest, extension: ModuleType) -> Any:
    return extension.num_same_messages if request.param == "compiled" else same_messages._by_python


@given(known=st.lists(VALUES, max_size=4), other=st.lists(VALUES, max_size=4))
def test_both_find_the_same(extension: ModuleType, known: list[Any], other: list[Any]) -> None:
    assert extension.num_same_messages(known, other) == same_messages._by_python(known, other)
    same = [*deepcopy(known), *other]
    assert (
        extension.num_same_messages(known, same)
        == len(known)
        == same_messages._by_python(known, same)
    )


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (1, True), (1, 1.0), (0.0, -0.0), (None, False), ("a", Text("a")), ("a", b"a"),
        ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": 1}, {"a": 1, "b": 2}),
        ("a", Anything()), ({"a": "b"}, {"a": Anything()}), ("a", uuid.UUID(int=1)),
        ([1], np.array([1])), ("a", None), ({"a": {}}, {"a": []}),
    ],
)  # fmt: skip
def test_values_that_differ(compare: Any, known: object, other: object) -> None:
    assert compare([known], [deepcopy(known)]) == 1
    assert compare(["before", known, "behind"], ["before", other, "behind"]) == 1


def test_nothing_is_too_deep_or_lost(compare: Any) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert compare([["a"]], [deep]) == 0
    shared = ["text", {"key": "value"}]
    before = sys.getrefcount(shared), sys.getrefcount(shared[1])
    for _ in range(100):
        assert compare([shared, shared], [deepcopy(shared), 1]) == 1
    assert (sys.getrefcount(shared), sys.getrefcount(shared[1])) == before


def test_the_compiled_part_is_used_where_it_answers_rightly(
    extension: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest = same_messages._fastest.__wrapped__
    monkeypatch.setattr(same_messages, "_messages", extension)
    assert fastest() is extension.num_same_messages
    loose = SimpleNamespace(num_same_messages=lambda known, messages: int(known == messages))
    for useless in (loose, None):
        monkeypatch.setattr(same_messages, "_messages", useless)
        assert fastest() is same_messages._by_python
    assert num_same_messages([{"role": "user"}], [{"role": "user"}, {}]) == 1
