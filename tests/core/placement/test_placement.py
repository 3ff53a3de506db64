"""Replacements take their places, and nothing else changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mmroute.errors import InexactError
from mmroute.geometry import Replacement
from mmroute.placement.expansion import Insertion, find_sequence, splice
from mmroute.placement.targets import AtStart, RenderedByTokenizer
from mmroute.requests.items import Modality


def image(number: int, ids: list[int]) -> Insertion:
    """An image that takes the place of a token 0."""
    return Insertion(Modality.IMAGE, number, (0,), Replacement(np.array(ids, dtype=np.uint32)))


def test_splice_only_replaces() -> None:
    """Outside the ranges the prompt is what it was; inside are the replacements."""
    draw = random.Random(0)
    for _ in range(100):
        ids = draw.choices(range(4), k=draw.randrange(30))
        positions = [i for i, token in enumerate(ids) if token == 0]
        lengths = [draw.randint(1, 5) for _ in positions]
        insertions = [image(number, [9] * n) for number, n in enumerate(lengths)]
        matches = [(item, at, at + 1) for item, at in enumerate(positions)]
        expansion = splice(np.array(ids, dtype=np.uint32), matches, insertions)
        rebuilt: list[int] = []
        end = 0
        for place in expansion.placeholders:
            rebuilt += [*expansion.token_ids[end : place.offset].tolist(), 0]
            end = place.offset + place.length
            assert set(expansion.token_ids[place.offset : end].tolist()) == {9}
        rebuilt += expansion.token_ids[end:].tolist()
        assert rebuilt == ids


def test_find_sequence_finds_the_first() -> None:
    draw = random.Random(1)
    for _ in range(1000):
        ids = draw.choices(range(3), k=draw.randrange(20))
        wanted = draw.choices(range(3), k=draw.randint(1, 3))
        places = [i for i in range(len(ids)) if ids[i : i + len(wanted)] == wanted]
        arrays = (np.array(ids, dtype=np.uint32), np.array(wanted, dtype=np.uint32))
        assert find_sequence(*arrays) == (places[0] if places else -1), (ids, wanted)


def test_images_already_in_the_prompt_are_found_in_order() -> None:
    one, other = image(0, [7, 8]), image(1, [7, 8])
    prompt = np.array([1, 7, 8, 2, 7, 8], dtype=np.uint32)
    expansion = RenderedByTokenizer().expand(prompt, [one, other])
    assert [(p.offset, p.length) for p in expansion.placeholders] == [(1, 2), (4, 2)]


@pytest.mark.parametrize(
    ("target", "ending", "prompt", "expanded"),
    [
        ((), None, [5, 6], [7, 7, 5, 6]),
        ((), None, [], [7, 7]),
        ((1,), None, [1, 5], [1, 7, 7, 5]),
        ((), 9, [5, 6], [7, 7, 5, 6, 9]),
        ((), 9, [5, 9], [7, 7, 5, 9]),
    ],
)
def test_an_item_is_put_in_at_the_start(
    target: tuple[int, ...], ending: int | None, prompt: list[int], expanded: list[int]
) -> None:
    one = image(0, [7, 7])._replace(target=target)
    found = AtStart(ending).expand(np.array(prompt, dtype=np.uint32), [one])
    assert found.token_ids.tolist() == expanded
    assert [(p.offset, p.length) for p in found.placeholders] == [(len(target), 2)]


def test_a_prompt_that_does_not_begin_as_it_must_is_refused() -> None:
    one = image(0, [7, 7])._replace(target=(1,))
    with pytest.raises(InexactError, match="placeholders for 0 of 1 images"):
        AtStart().expand(np.array([5, 1], dtype=np.uint32), [one])
