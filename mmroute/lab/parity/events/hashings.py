"""Finds the settings with which announced hashes were made, by computing the hashes again.

No request is needed: an event has the tokens and the extra keys of its hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.older_blocks import encode_block
from mmroute.hashing import (
    Algorithm,
    BlockKeys,
    EventKeys,
    ExtraKey,
    event_extra_keys,
    extra_keys,
    hash_blocks,
    none_hash,
)
from mmroute.hashing.algorithms import METHODS
from mmroute.hashing.chain import link_blocks
from mmroute.hashing.hashes import Hashes
from mmroute.hashing.vllm import event_int
from mmroute.lab.parity.events.chains import Chain

_ALGORITHMS: Final = dict.fromkeys(map(str, Algorithm), 0)
# Values of PYTHONHASHSEED that operators use.
_SEEDS: Final = (None, *map(str, range(2000)), "1234", "12345", "31337", "123456", "random")


@dataclass(frozen=True, slots=True)
class HashedWith:
    """The settings on which the hashes of an engine depend.

    Attributes:
        algorithm: the hash algorithm.
        seed: the value of PYTHONHASHSEED; None if it is not set.
        tagged: whether extra keys have tags, as they do since vLLM 0.31.
        lora_path: the path of the adapter; None for no adapter.
    """

    algorithm: str
    seed: str | None
    tagged: bool = True
    lora_path: str | None = None


def tagged(hashing: Hashes) -> bool:
    """Whether extra keys have tags; those of an engine that is not known are taken to have."""
    return not isinstance(hashing, VllmHashes) or hashing.keys is extra_keys


def predicted_keys(routing: Routing, block_size: int) -> Sequence[EventKeys]:
    """The extra keys of each full block, as events have them."""
    hashed = routing.extra_keys(block_size=block_size)
    return (event_extra_keys(hashed) or ()) if tagged(routing.hashing) else hashed


def hashed_with(
    chain: Chain, first: HashedWith, lora_paths: Sequence[str] = ()
) -> HashedWith | None:
    """The settings that give the hashes of a chain; None if none of those tried do."""
    return next((w for w in _candidates(chain, first, lora_paths) if _makes(w, chain)), None)


def _candidates(chain: Chain, first: HashedWith, lora_paths: Sequence[str]) -> Iterator[HashedWith]:
    paths: Sequence[str | None] = tuple(dict.fromkeys(lora_paths)) if chain.lora_name else (None,)
    forms = (first.tagged, not first.tagged) if any(chain.keys or ()) else (first.tagged,)
    seeds, algorithms = dict.fromkeys((first.seed, *_SEEDS)), {first.algorithm: 0, **_ALGORITHMS}
    for seed, algorithm, form, path in product(seeds, algorithms, forms, paths):
        yield HashedWith(algorithm, seed, form, path)


def _makes(how: HashedWith, chain: Chain) -> bool:
    """Whether the settings give all hashes; the first one is checked before the others."""
    for count in (1, len(chain.hashes)):
        hashes = _hashes(how, chain, count)
        if hashes is None or hashes != list(chain.hashes[:count]):
            return False
    return True


def _hashes(how: HashedWith, chain: Chain, count: int) -> list[int] | None:
    lookahead = len(chain.ahead)
    ids = np.append(chain.token_ids, np.array(chain.ahead, np.uint32))
    ids = ids[: count * chain.block_size + lookahead]
    keys: Sequence[EventKeys] = (chain.keys or (None,) * len(chain.hashes))[:count]
    try:
        root = none_hash(how.algorithm, how.seed)
        if how.tagged:
            found = hash_blocks(
                ids,
                [_tagged(key, chain, how, at) for at, key in enumerate(keys)],
                algorithm=how.algorithm,
                block_size=chain.block_size,
                seed=how.seed,
                lookahead=lookahead,
            )
            return found.event_ints()
    except ValueError:  # without PYTHONHASHSEED the algorithm has a random seed
        return None
    digest = METHODS[Algorithm(how.algorithm)].digest
    linked = link_blocks(
        ids, keys, root, block_size=chain.block_size, encode=encode_block, digest=digest
    )
    return list(map(event_int, linked))


def _tagged(keys: EventKeys, chain: Chain, how: HashedWith, at: int) -> BlockKeys:
    """The keys as they are hashed, with the tags and the adapter's path that events leave out."""
    found: list[ExtraKey] = []
    for number, key in enumerate(keys or ()):
        if isinstance(key, tuple):
            found.append(("mm", *key))
        elif number == 0 and key == chain.lora_name:
            found.append(("lora", key, how.lora_path or ""))
        elif at == 0:
            found.append(("cache_salt", key))
    return tuple(found) or None
