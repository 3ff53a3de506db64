"""What is kept of prompts: found again, bounded, and never in the way of the right hashes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_helpers import prefixes_from

from mmroute import Lora, Normalizer
from mmroute.hashing import Algorithm, HashedItem, extra_keys, hash_blocks
from mmroute.hashing import hashes as hash_cache
from mmroute.hashing.hashes import HashCache
from mmroute.reuse.fast_paths import FastPaths
from mmroute.reuse.prefix_cache import PrefixCache

FIRST: Final = 8
EMPTY: Final = 512  # bytes that an entry takes beside what it holds


@pytest.fixture(scope="module", autouse=True)
def short_prompts_are_known() -> Iterator[None]:
    with prefixes_from(FIRST):
        yield


def keep(cache: PrefixCache[str], text: str, *, salt: int = 0, size: int = 0) -> None:
    """Keep a text, as the caches do after they have looked for it."""
    _, hashes = cache.find(text, salt=salt)
    cache.put(text, hashes, text, size=size)


def found(cache: PrefixCache[str], text: str, *, salt: int = 0) -> str | None:
    return cache.find(text, salt=salt)[0]


def room_for(entries: int) -> PrefixCache[str]:
    return PrefixCache(entries * EMPTY)


def test_the_longest_known_beginning_is_found() -> None:
    cache = room_for(10)
    for text in ("a" * 20, "a" * 20 + "b" * 20, "c" * 20):
        keep(cache, text)
    assert found(cache, "a" * 20 + "b" * 13 + "d") == "a" * 20 + "b" * 20
    assert found(cache, "c" * 8) == "c" * 20
    assert found(cache, "c" * 7) is None
    assert found(cache, "ab" * 20) is None


def test_bytes_are_found_like_text() -> None:
    cache: PrefixCache[int] = PrefixCache(1 << 20)
    data = np.arange(64, dtype=np.uint32).view(np.uint8).data
    hashes = cache.find(data)[1]
    cache.put(1, hashes, data, size=len(data))
    assert cache.find(data[:40])[0] == 1
    assert cache.find(np.ones(64, np.uint8).data)[0] is None


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = room_for(3)
    for letter in "abc":
        keep(cache, letter * 8)
    assert found(cache, "a" * 9) == "a" * 8
    keep(cache, "d" * 8)
    assert [found(cache, letter * 8) is not None for letter in "abcd"] == [True, False, True, True]


def test_a_longer_prompt_takes_the_place_of_its_beginning() -> None:
    cache = room_for(10)
    for length in (8, 16, 24, 40):
        keep(cache, "a" * length)
    assert cache.stats().entries == 1
    assert found(cache, "a" * 8) == "a" * 40


def test_a_shorter_prompt_leaves_the_longer_one_where_it_goes_on() -> None:
    cache = room_for(10)
    keep(cache, "a" * 16 + "b" * 24)
    keep(cache, "a" * 16)
    assert cache.stats().entries == 2
    assert found(cache, "a" * 16 + "b" * 24) == "a" * 16 + "b" * 24
    assert found(cache, "a" * 16 + "c" * 24) == "a" * 16


def test_an_entry_that_is_too_large_is_not_kept_and_drives_nothing_out() -> None:
    cache = PrefixCache[str](2 * EMPTY)
    keep(cache, "a" * 8)
    keep(cache, "b" * 8, size=EMPTY + 1)
    keep(cache, "short")
    assert (cache.stats().entries, cache.stats().kept_bytes) == (1, EMPTY)
    assert found(cache, "a" * 8) == "a" * 8
    keep(cache, "b" * 8, size=EMPTY)
    assert (cache.stats().entries, cache.stats().kept_bytes) == (1, 2 * EMPTY)
    assert found(cache, "b" * 8) == "b" * 8


def test_salts_keep_apart_what_begins_alike() -> None:
    cache = room_for(10)
    for salt in (0, 5, -5):
        keep(cache, f"{'a' * 32}{salt}", salt=salt)
    for salt in (0, 5, -5):
        assert found(cache, "a" * 40, salt=salt) == f"{'a' * 32}{salt}"
        assert found(cache, "a" * 40, salt=salt + 1) is None


def test_lookups_are_counted_by_what_was_reused() -> None:
    cache = room_for(10)
    for reused in (0, 7, 0, 5):
        cache.count(reused)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.reused) == (2, 2, 12)


texts = st.lists(st.sampled_from(["a" * 8, "b" * 8, "abc", "c"]), max_size=8).map("".join)


@given(st.lists(st.tuples(texts, st.integers(0, 1), st.integers(0, 1500), st.booleans())))
@settings(max_examples=30)
def test_a_cache_is_bounded_and_knows_what_it_holds(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    cache = PrefixCache[str](2500)
    for text, salt, size, keeps in steps:
        entry = found(cache, text, salt=salt)
        assert entry is None or entry[:FIRST] == text[:FIRST]
        assert entry is None or entry in {kept.value for kept in cache._recent}, "it was evicted"
        if keeps:
            keep(cache, text, salt=salt, size=size)
        check_consistent(cache, 2500)


def check_consistent(cache: PrefixCache[Any], limit: int) -> None:
    held = list(cache._recent)
    assert cache._bytes == sum(kept.size for kept in held) <= limit
    assert all(kept in cache._recent for kept in cache._by_hash.values())
    for kept in held:
        ways = sum(cache._by_hash.get(each) is kept for each in kept.hashes)
        assert ways == kept.leading > 0, "nobody would ever find it, or it would never go"


def test_threads_leave_a_cache_whole() -> None:
    cache = room_for(5)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        chance = np.random.default_rng(seed)
        start.wait()
        for _ in range(300):
            text = "".join(chance.choice(["a" * 8, "b" * 8, "c" * 5], size=6))
            entry = found(cache, text)
            assert entry is None or entry[:FIRST] == text[:FIRST]
            keep(cache, text, size=int(chance.integers(600)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    check_consistent(cache, 5 * EMPTY)


# Block hashes that are kept


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Prompts that grow and branch off; an image's tokens are the same whoever it is."""
    turns = []
    ids: list[int] = []
    items: list[HashedItem] = []
    for _ in range(draw(st.integers(2, 8))):
        if draw(st.booleans()):  # branch off, or go back
            cut = draw(st.integers(0, len(ids)))
            ids, items = ids[:cut], [item for item in items if item.stop <= cut]
        if draw(st.booleans()):
            name, length = draw(st.sampled_from("XY")), draw(st.sampled_from([1, 9, 40]))
            items = [*items, HashedItem(name, len(ids), length)]
            ids = ids + [9] * length
        ids = ids + random.Random(draw(st.integers(0, 99))).choices(
            range(3), k=draw(st.integers(0, 20))
        )
        changes: bool = draw(st.booleans())
        if items and changes:  # the same tokens, another image
            at = draw(st.integers(0, len(items) - 1))
            changed = HashedItem(draw(st.sampled_from("XYZ")), items[at].offset, items[at].length)
            items = [*items[:at], changed, *items[at + 1 :]]
        turn = {
            "ids": np.array(ids, np.uint32),
            "items": items,
            "lora": draw(st.sampled_from([None, None, None, Lora("l", "/l"), Lora("m", "/l")])),
            "cache_salt": draw(st.sampled_from([None, None, None, "s", "t"])),
            "algorithm": draw(st.sampled_from(["sha256", *Algorithm])),
            "block_size": draw(st.sampled_from([4, 4, 1, 16])),
            "seed": draw(st.sampled_from(["0", "0", "1"])),
        }
        turns += [turn] * draw(st.integers(1, 2))
    return turns


def both_hashes(kept: HashCache, turn: dict[str, Any]) -> tuple[Any, Any]:
    """Of one prompt: with what is kept, and without."""
    size = turn["block_size"]
    keys = extra_keys(
        turn["items"],
        num_blocks=len(turn["ids"]) // size,
        block_size=size,
        lora=turn["lora"],
        cache_salt=turn["cache_salt"],
    )
    settings: Any = {name: turn[name] for name in ("algorithm", "block_size", "seed")}
    return (
        kept.hash_blocks(turn["ids"], keys, hash_blocks, settings),
        hash_blocks(turn["ids"], keys, **settings),
    )


def test_kept_hashes_change_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_cache, "_MIN_TOKENS", 1)
    shared = HashCache(20_000)

    @given(requests())
    @settings(max_examples=30)
    def same(turns: list[dict[str, Any]]) -> None:
        for turn in turns:
            with_reuse, without = both_hashes(shared, turn)
            assert with_reuse == without  # settings and hashes

    same()
    stats = shared.stats()
    assert min(stats.hits, stats.misses) > 30  # both ways were taken, whatever was drawn
    assert stats.kept_bytes <= 20_000


def test_kept_hashes_are_taken_over_up_to_the_first_other_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hash_cache, "_MIN_TOKENS", 64)
    kept = HashCache(1 << 20)
    turn: dict[str, Any] = {
        "ids": np.full(80, 9, np.uint32),
        "items": [HashedItem("X", 0, 32), HashedItem("Y", 32, 32)],
        "lora": None,
        "cache_salt": None,
        "algorithm": "sha256",
        "block_size": 16,
        "seed": None,
    }
    other = {**turn, "items": [HashedItem("X", 0, 32), HashedItem("Z", 32, 32)]}
    short = {**turn, "ids": turn["ids"][:63]}
    reused = [both_hashes(kept, each)[0].reused for each in (turn, turn, other, short, turn)]
    assert reused == [0, 5, 2, 0, 2], "the last is hashed anew behind what Z took the place of"
    stats = kept.stats()
    assert (stats.hits, stats.misses, stats.reused) == (3, 1, (5 + 2 + 2) * 16 * 4)


def test_a_routing_takes_over_what_earlier_ones_hashed(
    small_model: Callable[[str], Path],
) -> None:
    normalizer = Normalizer.from_pretrained(small_model("small-qwen2.5-vl"))
    ids = [*range(100)] * 90
    with prefixes_from(1024):  # as in use
        first = normalizer.normalize(prompt_token_ids=ids).block_hashes()
        second = normalizer.normalize(prompt_token_ids=ids + [7] * 16).block_hashes()
        other = normalizer.normalize(prompt_token_ids=ids, cache_salt="s").block_hashes()
        previous = normalizer.normalize(prompt_token_ids=ids).block_hashes(previous=other)
    assert (first.reused, second.reused, other.reused, previous.reused) == (0, 562, 0, 0)
    assert first.hashes == previous.hashes == second.hashes[:562]
    stats = normalizer.stats().hashes
    assert stats is not None
    assert (stats.hits, stats.misses) == (1, 2), "nobody asks the cache who has a previous answer"


def test_without_memory_nothing_is_kept(small_model: Callable[[str], Path]) -> None:
    fast_paths = FastPaths(text_cache_bytes=0, hash_cache_bytes=0)
    normalizer = Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), fast_paths=fast_paths)
    for _ in range(2):
        routing = normalizer.normalize(prompt="<|im_end|>what is this" * 1000)
        assert routing.block_hashes().reused == 0
    stats = normalizer.stats()
    assert stats.hashes is None
    assert stats.encoder is not None
    assert stats.encoder.reuse is None


@pytest.mark.parametrize("length", [100, 9000])
@pytest.mark.parametrize("wrong", ["sha-256", 5, ["sha256"]])
def test_a_wrong_algorithm_is_refused_alike_for_short_and_long_prompts(
    length: int, wrong: Any, normalizer: Callable[[str], Normalizer]
) -> None:
    routing = normalizer("small-qwen2.5-vl").normalize(prompt_token_ids=[1] * length)
    with pytest.raises(ValueError, match="no hash algorithm"):
        routing.block_hashes(wrong)
