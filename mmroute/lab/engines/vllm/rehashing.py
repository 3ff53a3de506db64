"""vLLM's hashes of announced blocks, computed again from their tokens and extra keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any, Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.versions import ERAS
from mmroute.errors import InexactError
from mmroute.hashing import (
    Algorithm,
    BlockHashes,
    BlockKeys,
    EventKeys,
    ExtraKey,
    PageHashes,
    event_extra_keys,
    extra_keys,
)
from mmroute.hashing.hashes import Hashes
from mmroute.kv_events import BlockIndex, WorkerRank
from mmroute.lab.parity.causes import Change
from mmroute.lab.parity.events.chains import Chain
from mmroute.model.resolved import ResolvedModel
from mmroute.token_ids import TokenIds

# Values of PYTHONHASHSEED that operators use.
_SEEDS: Final = (None, *map(str, range(2000)), "1234", "12345", "31337", "123456", "random")
_MAX_SEARCHED: Final = 8  # prompts whose first hash is looked for

SPECULATION: Final = "--speculative-config"
"""See `mmroute.lab.engines.Judge`."""
OTHER_HASHES: Final = (
    "The blocks have the same tokens and keys, and other hashes: the engine has another hash "
    "algorithm, PYTHONHASHSEED, path of an adapter, or version. Without PYTHONHASHSEED, xxhash and "
    "vLLM before 0.29 draw a seed at random."
)
"""See `mmroute.lab.engines.Judge`."""
UNKNOWN_HASHES: Final = (
    "its hashes depend on a seed that is drawn at random, or on the path of an adapter, which "
    "--lora-modules in --engine-args tells"
)
"""See `mmroute.lab.engines.Judge`."""


def event_ids(routing: Routing) -> TokenIds:
    """See `mmroute.lab.engines.Judge`."""
    return routing.token_ids


def lookahead(routing: Routing) -> int:
    """See `mmroute.lab.engines.Judge`."""
    return routing.hashing.lookahead if isinstance(routing.hashing, VllmHashes) else 0


def reused_tokens(
    _model: ResolvedModel, index: BlockIndex, routing: Routing, hashes: BlockHashes | PageHashes
) -> Mapping[WorkerRank, int | None]:
    """See `mmroute.lab.engines.Judge`."""
    return index.reused_tokens(
        hashes,
        num_tokens=len(routing.token_ids),
        block_size=routing.hashing.settings.size(None),
        reads_cache=routing.reads_cache,
    )


def _is_tagged(hashing: Hashes) -> bool:
    """Whether extra keys have tags; those of an engine that is not known are taken to have."""
    return not isinstance(hashing, VllmHashes) or hashing.keys is extra_keys


def event_keys(routing: Routing, block_size: int) -> Sequence[EventKeys]:
    """See `mmroute.lab.engines.Judge`."""
    hashed = routing.extra_keys(block_size=block_size)
    return (event_extra_keys(hashed) or ()) if _is_tagged(routing.hashing) else hashed


def rehashed(model: ResolvedModel, chain: Chain) -> list[int] | None:
    """See `mmroute.lab.engines.Judge`."""
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


def unpredicted(_model: ResolvedModel, routing: Routing, _chain: Chain) -> str:
    """See `mmroute.lab.engines.Judge`."""
    routing.hashes()  # raises: extra keys tell the blocks that it cannot predict
    return ""


def told_by_events(model: ResolvedModel, chains: Sequence[Chain]) -> list[Change]:
    """See `mmroute.lab.engines.Judge`."""
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
    ids = np.append(chain.token_ids, np.array(chain.ahead, np.int64)).astype(np.uint32)
    keys: Sequence[Any] = (chain.keys or (None,) * count)[:count]
    if _is_tagged(hashing):
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
