"""Simulated workers: their caches are vLLM's own, and what is counted of them adds up."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from mmroute.lab.traces.block_cache import BlockCache
from mmroute.lab.traces.requests import TracedRequest
from mmroute.lab.traces.simulation import Outcome, Policy, best_cached, curve_sizes, simulate

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


def traced(*hashes: int, **more: Any) -> TracedRequest:
    return TracedRequest(num_tokens=16 * len(hashes) + 1, hashes=array("Q", hashes), **more)


def outcome_of(policy: Policy, requests: list[TracedRequest], blocks: int, workers: int) -> Outcome:
    return simulate(requests, policy, workers=workers, blocks=blocks, block_size=16)


def test_requests_go_to_the_worker_of_their_policy() -> None:
    cat, dog = traced(1, 2, 3, 4, session=7), traced(5, 6, 7, 8, session=9)
    rates = {
        policy: outcome_of(policy, [cat, dog, dog, cat] * 5, blocks=5, workers=2).hit_rate
        for policy in Policy
    }
    assert rates[Policy.ROUND_ROBIN] < rates[Policy.SESSION] < rates[Policy.BLOCK_HASHES]
    assert rates[Policy.BLOCK_HASHES] == pytest.approx(18 / 20 * 64 / 65)


def test_answers_take_room_and_are_not_found_again() -> None:
    requests = [traced(1, 2), traced(5, 6), traced(1, 2)]
    assert outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1).hit_rate > 0
    requests[1] = traced(5, 6, output_length=48)
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1)
    assert (found.hit_rate, found.too_large) == (0, 0)


def test_a_request_that_reads_no_cache_reuses_nothing_and_leaves_its_blocks() -> None:
    requests = [traced(1, 2), traced(1, 2, reads_cache=False), traced(1, 2)]
    assert best_cached(requests, 16) == (2, 2)
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=9, workers=1)
    assert found.hit_rate == pytest.approx(32 / (3 * 33))


@given(
    prompts=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=60),
)
def test_the_largest_cache_of_the_curve_loses_nothing(prompts: list[tuple[int, int]]) -> None:
    """Each prompt is the beginning of one of six texts, of which two begin alike."""
    texts = [
        [t // 2 * (n < 10) + 100 * (n + 1) + t * (n >= 10) for n in range(40)] for t in range(6)
    ]
    requests = [traced(*texts[text][:length]) for text, length in prompts]
    cached, different = best_cached(requests, 16)
    sizes = curve_sizes(different + 2)  # room for a second copy of the last block, and its rest
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=sizes[-1], workers=1)
    tokens = sum(request.num_tokens for request in requests)
    assert found.computed == tokens - 16 * cached


def test_the_curve_reaches_all_blocks_of_a_trace() -> None:
    assert curve_sizes(1) == [1]
    assert curve_sizes(5) == [1, 2, 4, 8]
    assert curve_sizes(1 << 30)[-1] == 1 << 20
