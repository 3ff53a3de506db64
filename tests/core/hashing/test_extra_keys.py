"""What goes into a block hash beside token IDs, against a port of the engine's own loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmroute.hashing import (
    BlockKeys,
    ExtraKey,
    HashedItem,
    event_extra_keys,
    extra_keys,
)
from mmroute.requests.request import Lora

texts = st.sampled_from(["", "a", "\u00e9"]) | st.text(max_size=9)


def ported_extra_keys(
    items: list[HashedItem], num_blocks: int, block_size: int, lora: Lora | None, salt: str | None
) -> tuple[BlockKeys, ...]:
    """vLLM's loop over blocks, as `get_request_block_hasher` drives it."""
    found: list[BlockKeys] = []
    current = 0
    for start in range(0, num_blocks * block_size, block_size):
        keys: list[ExtraKey] = [("lora", lora.name, lora.path)] if lora else []
        stop = start + block_size
        if items and items[-1].stop > start:
            while current < len(items) and stop > items[current].offset:
                item = items[current]
                if start < item.stop:
                    keys.append(("mm", item.identity, item.offset - start))
                    if stop < item.stop:
                        break
                current += 1
        if start == 0 and salt:
            keys.append(("cache_salt", salt))
        found.append(tuple(keys) or None)
    return tuple(found)


hashed_items = st.builds(
    HashedItem, st.sampled_from(["cat", "dog", ""]), st.integers(0, 60), st.integers(1, 40)
)


@given(
    st.lists(hashed_items, max_size=6),
    st.integers(0, 12),
    st.sampled_from([1, 2, 3, 5, 16, 100_000]),
    st.none() | st.builds(Lora, texts, texts),
    st.none() | texts,
)
def test_extra_keys_are_those_of_the_engines_loop(
    items: list[HashedItem], num_blocks: int, block_size: int, lora: Lora | None, salt: str | None
) -> None:
    """Also for ranges that overlap by more than the one token of Gemma 3."""
    found = extra_keys(
        items, num_blocks=num_blocks, block_size=block_size, lora=lora, cache_salt=salt
    )
    by_position = sorted(items, key=lambda item: item.offset)
    assert found == ported_extra_keys(by_position, num_blocks, block_size, lora, salt)


@given(
    st.lists(hashed_items, max_size=5), st.sampled_from([1, 2, 3, 4, 5, 16]), st.integers(0, 120)
)
def test_keys_behind_a_block(items: list[HashedItem], block_size: int, start: int) -> None:
    num_blocks = 120 // block_size
    keys = extra_keys(items, num_blocks=num_blocks, block_size=block_size)
    start = min(start, num_blocks)
    assert list(keys.behind(start)) == list(keys)[start:]
    for at in range(num_blocks):
        assert keys[at] == list(keys)[at]


def test_an_image_that_goes_on_is_in_common() -> None:
    cat = HashedItem("cat", 5, 100)
    short = extra_keys([cat], num_blocks=3, block_size=16)
    longer = extra_keys([cat, HashedItem("dog", 105, 9)], num_blocks=9, block_size=16)
    assert short.in_common(longer) == 3
    assert extra_keys([cat], num_blocks=9, block_size=16).in_common(longer) == 6


@given(
    st.lists(hashed_items, max_size=4),
    st.lists(hashed_items, max_size=4),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([1, 3, 16]),
)
def test_keys_said_to_be_in_common_are(
    first: list[HashedItem], more: list[HashedItem], one: int, two: int, block_size: int
) -> None:
    ours = extra_keys(first, num_blocks=one, block_size=block_size)
    theirs = extra_keys([*first[1:], *more], num_blocks=two, block_size=block_size)
    count = ours.in_common(theirs)
    assert list(ours)[:count] == list(theirs)[:count]
    assert ours.in_common(ours) == one


def test_extra_keys_of_ranges_that_share_a_token() -> None:
    found = extra_keys(
        [HashedItem("cat", 1, 4), HashedItem("dog", 4, 4)],
        num_blocks=3,
        block_size=4,
        lora=Lora("sql", "/sql"),
        cache_salt="s",
    )
    lora = ("lora", "sql", "/sql")
    assert found == (
        (lora, ("mm", "cat", 1), ("cache_salt", "s")),
        (lora, ("mm", "cat", -3), ("mm", "dog", 0)),
        (lora,),
    )
    assert event_extra_keys(found) == [
        ("sql", ("cat", 1), "s"),
        ("sql", ("cat", -3), ("dog", 0)),
        ("sql",),
    ]


def test_no_extra_keys() -> None:
    assert extra_keys(num_blocks=2, block_size=4, cache_salt="") == (None, None)
    assert extra_keys(num_blocks=0, block_size=4, cache_salt="s") == ()
    assert event_extra_keys([None]) == [None]
    assert event_extra_keys([]) is None


@pytest.mark.parametrize("item", [HashedItem("cat", -1, 2), HashedItem("cat", 0, 0)])
def test_items_without_a_place_are_refused(item: HashedItem) -> None:
    with pytest.raises(ValueError, match="an item starts at 0 or later and has a token"):
        extra_keys([item], num_blocks=1, block_size=4)


def test_wrong_numbers_of_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="num_blocks must not be negative, found -1"):
        extra_keys(num_blocks=-1, block_size=4)
    with pytest.raises(ValueError, match="block_size must be an integer of at least 1, found 0"):
        extra_keys(num_blocks=1, block_size=0)
