"""Simulated workers: their caches are vLLM's own, and what is counted of them adds up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from mmroute.lab.traces.block_cache import BlockCache
from mmroute.lab.traces.requests import Piece, TracedItem, TracedRequest
from mmroute.lab.traces.reuse import ReuseCurve, Timeline
from mmroute.lab.traces.simulation import Fleet, FleetSize, Outcome, Policy
from mmroute.lab.traces.suspects import Suspects

POOLS = json.loads(
    (ROOT / "tests" / "lab" / "traces" / "block_pools.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("sequence", POOLS["sequences"])
def test_blocks_are_kept_and_evicted_as_by_vllm(sequence: dict[str, Any]) -> None:
    cache = BlockCache(sequence["num_blocks"])
    for step in sequence["steps"]:
        held = cache.num_held(step["hashes"])
        rest = bool(step["rest"])
        lookup = len(step["hashes"]) - (not rest)  # the last token is computed
        cached = cache.serve(step["hashes"], lookup=lookup, ends_in_block=rest)
        assert cached == step["cached"]
        assert cached in {held, held - 1}
        assert cache.held()[:8] == step["order"]
    assert cache.held() == sequence["held"]


def test_a_prompt_larger_than_the_cache_changes_nothing() -> None:
    cache = BlockCache(3)
    cache.serve([1, 2], lookup=2, ends_in_block=True)
    before = cache.held()
    assert cache.serve([1, 2, 3, 4], lookup=3, ends_in_block=False) == 0
    assert cache.held() == before


def traced(hashes: list[int], *, ids: list[int] | None = None, **more: Any) -> TracedRequest:
    tokens = 16 * len(hashes) + 1
    return TracedRequest(line=1, num_tokens=tokens, hashes=hashes, id_hashes=ids or [], **more)


def outcome_of(policy: Policy, requests: list[TracedRequest], blocks: int, workers: int) -> Outcome:
    fleet = Fleet(policy, FleetSize(workers, blocks, 16, encoder_tokens=100))
    for request in requests:
        fleet.serve(request)
    return fleet.outcome()


def test_token_ids_alone_take_two_images_for_one() -> None:
    """Two pictures of one size: equal IDs, other blocks. By hashes each finds its worker."""
    cat = traced([1, 2, 3, 4], ids=[9, 8, 7, 6])
    dog = traced([5, 6, 7, 8], ids=[9, 8, 7, 6])
    by_ids, by_hashes = (
        outcome_of(policy, [cat, dog] * 10, blocks=5, workers=2).hit_rate
        for policy in (Policy.TOKEN_IDS, Policy.BLOCK_HASHES)
    )
    assert by_ids == 0
    assert by_hashes == pytest.approx(18 / 20 * 64 / 65)


def test_an_item_is_encoded_where_neither_its_blocks_nor_its_features_are_there() -> None:
    def of_items(hashes: list[int], *identities: int) -> TracedRequest:
        items = [TracedItem(i, end=16 * n, features=60) for n, i in enumerate(identities, 1)]
        return traced(hashes, items=items)

    requests = [
        of_items([1], 7),  # encoded
        of_items([1], 7),  # in cached blocks
        of_items([2], 7),  # in the encoder cache
        of_items([3], 8),  # encoded; 7 is evicted
        of_items([4], 7),  # encoded
    ]
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=9, workers=1)
    counts = (found.items_in_blocks, found.items_in_encoder, found.items_encoded)
    assert counts == (1, 1, 3)


def test_answers_take_room_and_are_not_found_again() -> None:
    requests = [traced([1, 2]), traced([5, 6]), traced([1, 2])]
    assert outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1).hit_rate > 0
    requests[1] = traced([5, 6], output_length=48)
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1)
    assert (found.hit_rate, found.too_large) == (0, 0)


def test_a_request_that_reads_no_cache_reuses_nothing_and_leaves_its_blocks() -> None:
    requests = [traced([1, 2]), traced([1, 2], reads_cache=False), traced([1, 2])]
    curve, read = ReuseCurve(16), [0, 0, 2]
    assert [curve.add(request) for request in requests] == read
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=9, workers=1)
    assert found.hit_rate == pytest.approx(32 / (3 * 33))


@given(
    prompts=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=60),
)
def test_the_curve_is_that_of_an_lru_cache(prompts: list[tuple[int, int]]) -> None:
    """Each prompt is the beginning of one of six texts, of which two begin alike."""
    texts = [
        [t // 2 * (n < 10) + 100 * (n + 1) + t * (n >= 10) for n in range(40)] for t in range(6)
    ]
    curve = ReuseCurve(16)
    lru: list[int] = []  # the last used comes first
    found = dict.fromkeys((64, 128, 256), 0)
    for text, length in prompts:
        hashes = texts[text][:length]
        for size in found:
            found[size] += next((n for n, b in enumerate(hashes) if b not in lru[:size]), length)
        curve.add(traced(hashes))
        lru = hashes + [block for block in lru if block not in hashes]
    assert curve.different == len(lru)
    for size, rate in curve.hit_rates():
        assert rate * curve.tokens == pytest.approx(found[size] * 16)


def test_a_timeline_keeps_all_requests_in_few_bins() -> None:
    timeline = Timeline()
    for number in range(1000):
        timeline.add(traced([1], timestamp=number), cached=number % 2)
    assert len(timeline.bins) <= 120
    assert sum(each.requests for each in timeline.bins) == 1000
    assert sum(each.cached for each in timeline.bins) == 500
    assert [each.timestamp for each in timeline.bins[:2]] == [0, timeline.bins[0].requests]


def test_suspects_are_drawn_by_what_they_may_have_lost() -> None:
    suspects = Suspects(16)
    for line in range(0, 3000, 3):
        pieces = [Piece(line, 8), Piece(line + 1, 16 * (1 + line % 7))]
        changed = [Piece(line + 2, 8), pieces[1]]
        for at, each in enumerate((pieces, changed)):
            request = traced([line, line + at], pieces=each)
            suspects.add(msgspec.structs.replace(request, line=line + at + 1), num_cached=0)
    assert len(suspects) == 1000
    assert {each.stands_for for each in suspects.drawn(1000)} == {1}
    drawn = suspects.drawn(100)
    assert len(drawn) == 100
    lost = sum(each.stands_for * (2 + (each.first - 1) % 7) for each in drawn)
    assert lost == pytest.approx(sum(2 + line % 7 for line in range(0, 3000, 3)), rel=0.25)
