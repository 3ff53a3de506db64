"""The blocks that an engine announced, joined to prompts, and their hashes computed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.versions import ERAS
from mmroute.errors import EventsError, InexactError, Reason, quoted
from mmroute.hashing import Algorithm, BlockKeys, EventKeys, ExtraKey, event_extra_keys, extra_keys
from mmroute.hashing.hashes import Hashes
from mmroute.kv_events import BlockStored, EventBatch
from mmroute.kv_events.groups import GPU
from mmroute.kv_events.holders import low_bits
from mmroute.lab.parity.causes import Change
from mmroute.model.resolved import ResolvedModel
from mmroute.token_ids import TokenIds

# Values of PYTHONHASHSEED that operators use.
_SEEDS: Final = (None, *map(str, range(2000)), "1234", "12345", "31337", "123456", "random")
_MAX_SEARCHED: Final = 8  # prompts whose first hash is looked for


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The announced blocks of a prompt, from its first block on."""

    block_size: int  # the number of tokens in a block
    token_ids: TokenIds  # the token IDs of all blocks, shape (n,), uint32
    hashes: tuple[int, ...]  # the low 64 bits of each block's hash
    # The extra keys of each block; None if the engine's events do not have them.
    keys: tuple[EventKeys, ...] | None
    lora_name: str | None  # the name of the adapter; None for no adapter
    # The lookahead tokens of the last block; the other blocks have as many.
    ahead: tuple[int, ...] = ()

    @property
    def salts(self) -> list[str]:
        """The first block's keys that are texts, except the adapter."""
        first = (self.keys or (None,))[0] or ()
        return [key for key in first if isinstance(key, str) and key != self.lora_name]


@dataclass(frozen=True, slots=True)
class _Block:
    parent: int | None
    token_ids: tuple[int, ...]
    keys: EventKeys
    has_keys: bool
    lora_name: str | None
    ahead: tuple[int, ...]


@dataclass(slots=True)
class Chains:
    """All blocks that were announced, also those that the engine has evicted since."""

    _blocks: dict[int, _Block] = field(default_factory=dict)
    _hash_size: int = 0

    def enter(self, batches: Iterable[EventBatch]) -> list[Chain]:
        """The prompts of the blocks in these events, if all their earlier blocks are known.

        Of several KV cache groups those are read whose blocks have the tokens of one hash.
        """
        new: dict[int, None] = {}
        stored = list(stored_in(batches))
        self._hash_size = math.gcd(self._hash_size, *(event.block_size for event in stored))
        for event in filter(self._is_whole, stored):
            new |= dict.fromkeys(self._blocks_of(event))
        parents = {self._blocks[number].parent for number in new}
        return [c for number in new if number not in parents and (c := self._chain(number))]

    def with_hashes(self, hashes: Iterable[int]) -> Chain | None:
        """The prompt up to the last of these hashes that was announced."""
        known = [number for number in hashes if number in self._blocks]
        return self._chain(known[-1]) if known else None

    def _is_whole(self, event: BlockStored) -> bool:
        # An event may leave out blocks of a window or a state, but not their tokens.
        tokens = len(event.block_hashes) * event.block_size
        return 0 < tokens == len(event.token_ids) and event.block_size == self._hash_size

    def _blocks_of(self, event: BlockStored) -> Iterator[int]:
        parent = None if event.parent_block_hash is None else low_bits(event.parent_block_hash)
        size, keys, ahead = event.block_size, event.extra_keys, event.lookahead_token_ids
        for at, block_hash in enumerate(map(low_bits, event.block_hashes)):
            self._blocks[block_hash] = _Block(
                parent,
                event.token_ids[at * size : (at + 1) * size],
                event_keys(keys[at]) if keys else None,
                keys is not None,
                event.lora_name,
                ahead[at] if ahead else (),
            )
            yield block_hash
            parent = block_hash

    def _chain(self, last: int) -> Chain | None:
        hashes: list[int] = []
        blocks: list[_Block] = []
        number: int | None = last
        while number is not None:
            block = self._blocks.get(number)
            if block is None or len(hashes) > len(self._blocks):
                return None  # the block before was announced earlier, or blocks form a circle
            hashes.append(number)
            blocks.append(block)
            number = block.parent
        blocks.reverse()
        told = any(block.has_keys for block in blocks)
        return Chain(
            len(blocks[0].token_ids),
            np.array([i for block in blocks for i in block.token_ids], np.uint32),
            tuple(reversed(hashes)),
            tuple(block.keys for block in blocks) if told else None,
            blocks[0].lora_name,
            blocks[-1].ahead,
        )


def stored_in(batches: Iterable[EventBatch]) -> Iterator[BlockStored]:
    """The events of blocks that were stored in the GPU's memory."""
    for batch in batches:
        for event in batch.events:
            if isinstance(event, BlockStored) and event.medium in (None, GPU):
                yield event


def event_keys(keys: tuple[object, ...] | None) -> EventKeys:
    """The extra keys of a block, as an event has them."""
    found: list[str | tuple[str, int]] = []
    for key in keys or ():
        match key:
            case str():
                found.append(key)
            case [str() as identity, int() as offset]:
                found.append((identity, offset))
            case _:
                raise EventsError(
                    Reason.MALFORMED_EVENTS,
                    "an extra key of a block must be a text, or the identity of an item and its "
                    f"offset, found {quoted(key)}",
                )
    return tuple(found) or None


def tagged(hashing: Hashes) -> bool:
    """Whether extra keys have tags; those of an engine that is not known are taken to have."""
    return not isinstance(hashing, VllmHashes) or hashing.keys is extra_keys


def predicted_keys(routing: Routing, block_size: int) -> Sequence[EventKeys]:
    """The extra keys of each full block, as events have them."""
    hashed = routing.extra_keys(block_size=block_size)
    return (event_extra_keys(hashed) or ()) if tagged(routing.hashing) else hashed


def rehashed(model: ResolvedModel, chain: Chain) -> list[int] | None:
    """The hashes of a chain's tokens and keys; None if they depend on what is not known."""
    paths = getattr(model.settings, "loras", {})
    if chain.lora_name is not None and chain.lora_name not in paths:
        return None
    known = model.hashing.settings
    if not isinstance(model.hashing, VllmHashes):
        return None
    return _hashes(
        model.hashing,
        chain,
        algorithm=known.algorithm,
        seed=known.seed,
        lora_path=paths.get(chain.lora_name, ""),
    )


def told_by_events(model: ResolvedModel, batches: Iterable[EventBatch]) -> list[Change]:
    """The settings of hashes, where those that the events tell are not the model's."""
    chains = Chains().enter(batches)
    known = model.hashing.settings
    if not chains or not isinstance(model.hashing, VllmHashes):
        return []
    changes = []
    ((size, _),) = Counter(chain.block_size for chain in chains).most_common(1)
    if size != known.block_size:
        option = "--prefix-match-unit" if known.chosen_by_engine else "--block-size"
        field = "hash_block_size" if known.chosen_by_engine else "block_size"
        changes.append(Change(option, size, {field: size}))
    alone = (chain for chain in chains if chain.lora_name is None)
    found = next((how for c in islice(alone, _MAX_SEARCHED) if (how := _hashed_with(c, known))), ())
    for algorithm, seed in found and [found]:
        if algorithm != known.algorithm:
            changed = {"hash_algorithm": algorithm}
            changes.append(Change("--prefix-caching-hash-algo", algorithm, changed))
        if seed != known.seed:
            changes.append(Change("PYTHONHASHSEED", seed, {"hash_seed": seed}))
    return changes


def _hashed_with(chain: Chain, known: Any) -> tuple[str, str | None] | None:
    """The algorithm and the seed that give the hash of a chain's first block."""
    seeds = dict.fromkeys((known.seed, *_SEEDS))
    algorithms = dict.fromkeys((known.algorithm, *map(str, Algorithm)))
    eras = (ERAS[0].hashes, ERAS[-1].hashes)  # with tags in the extra keys, and without
    for seed, algorithm, hashing in product(seeds, algorithms, eras):
        found = _hashes(hashing, chain, count=1, algorithm=algorithm, seed=seed)
        if found == [chain.hashes[0]]:
            return algorithm, seed
    return None


def _hashes(
    hashing: VllmHashes,
    chain: Chain,
    *,
    algorithm: str,
    seed: str | None,
    count: int | None = None,
    lora_path: str = "",
) -> list[int] | None:
    count = len(chain.hashes) if count is None else count
    ahead = len(chain.ahead)
    ids = np.append(chain.token_ids, np.array(chain.ahead, np.uint32))
    keys: Sequence[Any] = (chain.keys or (None,) * count)[:count]
    if tagged(hashing):
        keys = [_tagged(key, chain, lora_path, at) for at, key in enumerate(keys)]
    elif ahead:  # before lookahead tokens were covered
        return None
    try:
        hashes = hashing.hash(
            ids[: count * chain.block_size + ahead],
            keys,
            algorithm=algorithm,
            block_size=chain.block_size,
            seed=seed,
            **({"lookahead": ahead} if ahead else {}),
        )
    except (InexactError, ValueError):  # for example an algorithm whose seed is drawn at random
        return None
    return hashes.event_ints()


def _tagged(keys: EventKeys, chain: Chain, lora_path: str, at: int) -> BlockKeys:
    """The keys as they are hashed, with the tags and the adapter's path that events leave out."""
    found: list[ExtraKey] = []
    for number, key in enumerate(keys or ()):
        if isinstance(key, tuple):
            found.append(("mm", *key))
        elif number == 0 and key == chain.lora_name:
            found.append(("lora", key, lora_path))
        elif at == 0:
            found.append(("cache_salt", key))
    return tuple(found) or None
