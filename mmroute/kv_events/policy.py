"""Chooses the worker for a prompt, by the cost of its tokens and items and of the wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NewType, TypeVar

from mmroute.kv_events.holders import Blocks

if TYPE_CHECKING:
    from mmroute.answering.routing import Routing

__all__ = [
    "Choice", "Cost", "EncoderCache", "Prompt", "PromptItem", "Tokens", "Weights", "WorkerState",
    "cost", "pick", "prompt_items",
]  # fmt: skip

Tokens = NewType("Tokens", int)
"""A number of tokens, where a number of blocks could be meant."""

_NONE: Final = Blocks(0)
_Worker = TypeVar("_Worker")


class PromptItem(NamedTuple):
    """An image, video or audio of a prompt."""

    identity: str  # the engine's name for it
    end: Tokens  # the position behind its placeholder
    features: int  # positions that receive features


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a prompt that cost computation."""

    tokens: Tokens  # its length
    block_size: Tokens
    items: tuple[PromptItem, ...] = ()  # its images, videos and audios
    reads_cache: bool = True  # whether the engine looks it up in its prefix cache; see `Routing`

    @classmethod
    def of(cls, routing: Routing, block_size: int) -> Prompt:
        """The prompt of an exact answer."""
        tokens = Tokens(len(routing.token_ids))
        return cls(tokens, Tokens(block_size), prompt_items(routing), routing.reads_cache)


def prompt_items(routing: Routing) -> tuple[PromptItem, ...]:
    """The items of an exact answer, in the order of their positions."""
    return tuple(
        PromptItem(
            identity.value,
            Tokens(place.offset + place.length),
            sum(n for embeds, n in place.embed_runs or () if embeds) or place.length,
        )
        for place, identity in routing.identified()
    )


class EncoderCache:
    """A model of a worker's encoder cache, which holds the features that were used last.

    Source: vLLM ``v1/core/encoder_cache_manager.py``: entries that no request needs are
    evicted when room is wanted, those unused for longest first.

    Args:
        capacity: the number of feature positions that fit into it.
    """

    def __init__(self, capacity: int) -> None:
        self._free = capacity
        self._features: OrderedDict[Hashable, int] = OrderedDict()  # by identity

    def __contains__(self, identity: object) -> bool:
        return identity in self._features

    def use(self, identity: Hashable, features: int) -> bool:
        """Whether an item was there; it is entered unless it is larger than the cache."""
        known = identity in self._features
        if not known:
            self._features[identity] = features
            self._free -= features
        self._features.move_to_end(identity)
        while self._free < 0:
            _, evicted = self._features.popitem(last=False)
            self._free += evicted
        return known


class WorkerState(NamedTuple):
    """The state of a worker when a prompt arrives."""

    held: Blocks = _NONE  # the number of leading blocks of the prompt that it holds in any medium
    at_hand: Blocks = _NONE  # how many of these are in the GPU's memory and need no fetching
    requests: float = 0  # the number of requests that it is working on
    # The identities of items whose features are in its encoder cache.
    encoded: Container[Hashable] = ()
    # The prompt as its engine has it, where workers differ in engine or block size; None for the
    # prompt that all have.
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """The costs of each kind of work, in computed tokens of a prompt."""

    # The cost of a cached token in another medium than the GPU's memory. The default follows
    # llm-d's scorer, which counts a token in CPU memory as 0.8 of a token in GPU memory.
    fetched_token: float = 0.2
    feature: float = 1.0  # the cost of encoding one position of an item
    # Each request that the worker has already. None takes a quarter of what the prompt costs
    # without any cache, and 256 at most. Then a worker that holds all of a short prompt is
    # preferred until it has four requests more than another.
    request: float | None = None
    # A worker that holds less than this part of a prompt's blocks counts as one that holds nothing.
    # A prefix that all prompts share, such as a system prompt, would otherwise gather all of them
    # at one worker.
    least_share: float = 0.5


DEFAULT_WEIGHTS: Final = Weights()
_REQUEST_SHARE: Final = 0.25
_MOST_PER_REQUEST: Final = 256.0


class Cost(NamedTuple):
    """The cost of a prompt at a worker, in computed tokens."""

    compute: float  # the cost of tokens that are not cached
    fetch: float  # the cost of cached tokens that come from another medium
    # The cost of items whose features are neither in cached blocks nor in the encoder cache.
    encode: float
    wait: float  # the cost of the requests that are there already

    @property
    def total(self) -> float:
        """The sum of the four."""
        return self.compute + self.fetch + self.encode + self.wait


def cost(prompt: Prompt, worker: WorkerState, weights: Weights = DEFAULT_WEIGHTS) -> Cost:
    """The cost of a prompt at a worker.

    The last token of a prompt is always computed, with the block in which it is. Source: vLLM
    ``v1/core/kv_cache_manager.py`` (`get_computed_blocks`).

    >>> prompt = Prompt(Tokens(1000), Tokens(16), (PromptItem("picture", Tokens(600), 500),))
    >>> cost(prompt, WorkerState(requests=2))
    Cost(compute=1000, fetch=0.0, encode=500.0, wait=512.0)
    >>> cost(prompt, WorkerState(held=Blocks(60), at_hand=Blocks(50)))
    Cost(compute=40, fetch=32.0, encode=0.0, wait=0.0)
    """
    prompt = worker.prompt or prompt
    most = _most_cached(prompt)
    held = min(worker.held, most)
    if held < weights.least_share * most:
        held = 0
    cached = held * prompt.block_size
    fetched = cached - min(worker.at_hand, held) * prompt.block_size
    return Cost(
        prompt.tokens - cached,
        fetched * weights.fetched_token,
        _to_encode(prompt, worker, cached) * weights.feature,
        worker.requests * _per_request(prompt, weights),
    )


class Choice(NamedTuple, Generic[_Worker]):
    """The worker for a prompt."""

    worker: _Worker  # its name
    cost: Cost  # the cost of the prompt at this worker
    follows: bool  # whether the worker was chosen for its caches: they make the prompt cheaper


def pick(
    prompt: Prompt,
    workers: Mapping[_Worker, WorkerState],
    weights: Weights = DEFAULT_WEIGHTS,
) -> Choice[_Worker]:
    """The worker at which a prompt costs least; among equals, the one with fewest requests.

    Args:
        prompt: the prompt; see `WorkerState.prompt` for workers of several engines.
        workers: the state of each worker, by its name. Shuffle them if equals are to take turns.
        weights: the costs of each kind of work.

    Raises:
        ValueError: there is no worker.

    >>> prompt = Prompt(Tokens(1000), Tokens(16))
    >>> workers = {"a": WorkerState(requests=3), "b": WorkerState(held=Blocks(60), requests=5)}
    >>> pick(prompt, workers).worker
    'b'
    """
    most = _most_cached(prompt)
    names = iter(workers)
    best = next(names, None)
    if best is None:
        raise ValueError("there is no worker to pick")
    least_cost, per_request = cost(prompt, workers[best], weights), _per_request(prompt, weights)
    least = least_cost.total, workers[best].requests
    for name in names:
        state = workers[name]
        if state.prompt is None:
            # Most workers cannot win, which takes a third of the time of all their costs to see.
            cached = min(state.held, most) * prompt.block_size
            encode = _to_encode(prompt, state, cached) * weights.feature
            at_least = prompt.tokens - cached + encode + state.requests * per_request
            if (at_least, state.requests) >= least:
                continue
        there = cost(prompt, state, weights)
        if (there.total, state.requests) < least:
            best, least_cost, least = name, there, (there.total, state.requests)
    without = WorkerState(requests=least[1], prompt=workers[best].prompt)
    nothing = cost(prompt, without, weights)
    return Choice(best, least_cost, least_cost.total < nothing.total)


def _to_encode(prompt: Prompt, worker: WorkerState, cached: int) -> int:
    """The features of items behind `cached` tokens that the worker has not encoded yet."""
    return sum(
        [
            item.features
            for item in prompt.items
            if item.end > cached and item.identity not in worker.encoded
        ]
    )


def _per_request(prompt: Prompt, weights: Weights) -> float:
    """The cost of a request that waits or runs at a worker already."""
    if weights.request is not None:
        return weights.request
    encoded = sum(item.features for item in prompt.items) * weights.feature
    return min(_MOST_PER_REQUEST, _REQUEST_SHARE * (prompt.tokens + encoded))


def _most_cached(prompt: Prompt) -> int:
    """How many blocks the engine may take from its cache."""
    if not prompt.reads_cache:
        return 0
    return max(0, prompt.tokens - 1) // prompt.block_size
