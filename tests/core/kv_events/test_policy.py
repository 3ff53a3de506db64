"""The cost of a prompt at a worker, and the worker that is picked, as rules."""

from __future__ import annotations

import dataclasses
import random
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmroute import ImageSize, Normalizer
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import (
    EncoderCache,
    Prompt,
    PromptItem,
    Tokens,
    Weights,
    WorkerState,
    cost,
    pick,
)

PICTURE = PromptItem("picture", Tokens(600), 500)
PROMPT = Prompt(Tokens(1000), Tokens(16), (PICTURE,))
WHOLE = WorkerState(held=Blocks(62), at_hand=Blocks(62))


def blocks(count: int, requests: float = 0) -> WorkerState:
    return WorkerState(Blocks(count), Blocks(count), requests)


@pytest.mark.parametrize(
    ("tokens", "held", "computed"),
    [
        (1000, 62, 8),
        (1000, 63, 8),
        (1000, 61, 24),
        (992, 62, 16),
        (16, 1, 16),
        (17, 1, 1),
        (0, 0, 0),
    ],
)
def test_the_last_token_is_always_computed(tokens: int, held: int, computed: int) -> None:
    assert cost(Prompt(Tokens(tokens), Tokens(16)), blocks(held)).compute == computed


def test_less_than_the_least_share_counts_for_nothing() -> None:
    assert cost(PROMPT, blocks(31)).compute == 1000 - 31 * 16
    assert cost(PROMPT, blocks(30)).compute == 1000
    assert cost(PROMPT, blocks(30), Weights(least_share=0)).compute == 1000 - 30 * 16


def test_blocks_are_worth_nothing_to_a_prompt_that_is_not_looked_up() -> None:
    prompt = dataclasses.replace(PROMPT, reads_cache=False)
    assert cost(prompt, blocks(60)) == cost(prompt, blocks(0)) == cost(PROMPT, blocks(0))
    workers = {"holds": blocks(60, 1), "idle": blocks(0)}
    assert pick(PROMPT, workers).worker == "holds"
    choice = pick(prompt, workers)
    assert (choice.worker, choice.follows) == ("idle", False)
    normalizer = Normalizer.from_pretrained("pixtral-12b-2409", model_id="m")
    for reads in (True, False):
        routing = normalizer.normalize(prompt="Hi", reads_cache=reads)
        assert Prompt.of(routing, 16).reads_cache is reads


def test_blocks_elsewhere_than_on_the_gpu_are_fetched() -> None:
    found = cost(
        PROMPT, WorkerState(held=Blocks(60), at_hand=Blocks(40)), Weights(fetched_token=0.5)
    )
    assert (found.compute, found.fetch) == (40, 20 * 16 * 0.5)
    assert pick(PROMPT, {"cpu": WorkerState(held=Blocks(62)), "gpu": WHOLE}).worker == "gpu"
    assert (
        pick(PROMPT, {"none": WorkerState(), "cpu": WorkerState(held=Blocks(62))}).worker == "cpu"
    )


def test_an_item_is_encoded_unless_blocks_cover_it_or_the_encoder_has_it() -> None:
    assert cost(PROMPT, WorkerState()).encode == 500
    assert cost(PROMPT, blocks(38)).encode == 0  # 608 tokens
    assert cost(PROMPT, blocks(37)).encode == 500  # 592 tokens: the last features are missing
    encoder = EncoderCache(600)
    encoder.use("picture", 500)
    assert cost(PROMPT, WorkerState(encoded=encoder)).encode == 0
    assert pick(PROMPT, {"a": WorkerState(), "b": WorkerState(encoded=encoder)}).worker == "b"
    encoder.use("another", 200)
    assert cost(PROMPT, WorkerState(encoded=encoder)).encode == 500


def test_a_worker_is_followed_until_its_requests_cost_more_than_its_cache_saves() -> None:
    saved = cost(PROMPT, WorkerState()).total - cost(PROMPT, WHOLE).total
    weights = Weights(request=saved / 3.5)
    for requests, best in ((0, "holds"), (3, "holds"), (4, "free")):
        workers = {"free": WorkerState(), "holds": WHOLE._replace(requests=requests)}
        choice = pick(PROMPT, workers, weights)
        assert (choice.worker, choice.follows) == (best, best == "holds")


def test_credits_of_blocks_of_several_sizes_are_compared_in_tokens() -> None:
    """As one engine of a mixed fleet has it, the prompt may have more tokens as well."""
    pages = Prompt(Tokens(1001), Tokens(64), (PICTURE,))
    workers = {"blocks": blocks(36), "pages": blocks(10)._replace(prompt=pages)}
    chosen = pick(PROMPT, workers)
    assert (chosen.worker, chosen.cost.compute) == ("pages", 1001 - 640)
    assert chosen.follows
    workers["blocks"] = blocks(41)
    assert pick(PROMPT, workers).worker == "blocks"
    empty = {"pages": WorkerState(prompt=pages)}
    assert not pick(PROMPT, empty).follows
    assert cost(PROMPT, empty["pages"]).compute == 1001


def test_equal_costs_go_to_fewer_requests_and_then_to_the_first() -> None:
    free = Weights(request=0)
    assert (
        pick(PROMPT, {"a": blocks(0, requests=2), "b": blocks(0, requests=1)}, free).worker == "b"
    )
    assert pick(PROMPT, {"b": WorkerState(), "a": WorkerState()}).worker == "b"
    with pytest.raises(ValueError, match="no worker"):
        pick(PROMPT, {})


counts = st.integers(0, 70).map(Blocks)
states = st.builds(
    lambda held, hand, requests, encoded: WorkerState(
        held, min(held, hand), requests, {"picture"} if encoded else ()
    ),
    counts, counts, st.integers(0, 5), st.booleans(),
)  # fmt: skip


@given(st.lists(states, min_size=1, max_size=8), st.sampled_from([0.0, 1.0, 64.0, 256.0]))
def test_no_worker_is_cheaper_than_the_one_that_is_picked(
    workers: list[WorkerState], request: float
) -> None:
    weights = Weights(request=request)
    choice = pick(PROMPT, dict(enumerate(workers)), weights)
    ranked = [(cost(PROMPT, state, weights).total, state.requests) for state in workers]
    assert choice.worker == ranked.index(min(ranked))
    assert choice.cost == cost(PROMPT, workers[choice.worker], weights)


def test_workers_that_all_lack_a_new_picture_are_not_priced_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced = Mock(wraps=cost)
    monkeypatch.setattr("mmroute.kv_events.policy.cost", priced)
    assert pick(PROMPT, {n: WorkerState(encoded={"another"}) for n in range(64)}).worker == 0
    assert priced.call_count <= 2


def test_a_prompt_is_read_from_an_answer() -> None:
    normalizer = Normalizer.from_pretrained("pixtral-12b-2409", model_id="m")
    content = [{"type": "text", "text": "Look."}, {"type": "image"}]
    image = ImageSize(640, 480, uuid="page-1")
    routing = normalizer.normalize(messages=[{"role": "user", "content": content}], images=[image])
    prompt = Prompt.of(routing, 16)
    (place,) = routing.placeholders
    assert prompt.tokens == len(routing.token_ids)
    assert prompt.items == (PromptItem("page-1", Tokens(place.offset + place.length), 40 * 30),)


def test_the_encoder_cache_evicts_what_was_unused_for_longest() -> None:
    cache, draw = EncoderCache(10), random.Random(0)
    used: list[int] = []
    for _ in range(300):
        item = draw.randrange(8)
        assert cache.use(item, 3) == (item in list(dict.fromkeys(reversed(used)))[:3])
        used.append(item)


def simulated(
    tokens: int, request: float | None, *, hot: float = 0.0, load: float = 0.9
) -> tuple[float, float, int]:
    """A fleet of eight workers, each of which computes one prompt after the other.

    Args:
        tokens: the length of each prompt, all of which but the last block may be cached.
        request: the weight of a request.
        hot: the part of all prompts that are one and the same; the others are of 64 sessions.
        load: how busy the fleet would be without any cache.

    Returns:
        The hit rate, the mean time to the first token in times of an uncached prompt, and by how
        many requests one worker ever was ahead of another.
    """
    draw, weights, prompt = (
        random.Random(0),
        Weights(request=request),
        Prompt(Tokens(tokens), Tokens(16)),
    )
    most = Blocks((tokens - 1) // 16)
    held: list[dict[int, None]] = [{} for _ in range(8)]  # sessions, the oldest first
    ends: list[list[float]] = [[] for _ in range(8)]
    now = hits = waited = 0.0
    ahead = 0
    for _ in range(2000):
        now += draw.expovariate(load * 8 / tokens)
        session = 0 if draw.random() < hot else draw.randrange(64)
        ends = [[end for end in own if end + tokens / 2 > now] for own in ends]  # of decoding
        states = {
            w: blocks(most if session in held[w] else 0, len(ends[w]))
            for w in draw.sample(range(8), 8)
        }
        worker = pick(prompt, states, weights).worker
        cached = states[worker].held * 16
        held[worker].pop(session, None)
        held[worker][session] = None
        if len(held[worker]) > 12:
            del held[worker][next(iter(held[worker]))]
        ends[worker].append(max([now, *ends[worker]]) + tokens - cached)
        waited += ends[worker][-1] - now
        hits += cached
        ahead = max(ahead, max(map(len, ends)) - min(map(len, ends)))
    return hits / (2000 * tokens), waited / (2000 * tokens), ahead


@pytest.mark.parametrize("tokens", [40, 200, 1000, 8000])
def test_the_default_finds_caches_of_prompts_of_any_length(tokens: int) -> None:
    """As many as without any weight of requests, while no worker runs ahead of the others."""
    hits, waited, ahead = simulated(tokens, None)
    best, _, _ = simulated(tokens, 0)
    assert hits > best - 0.02
    assert waited < 0.3
    assert ahead <= 6


def test_the_default_does_not_gather_a_prompt_that_many_send_at_one_worker() -> None:
    gathered, spread = (simulated(40, request, hot=0.8, load=4) for request in (0, None))
    assert gathered[2] > 1000
    assert spread[2] <= 6
