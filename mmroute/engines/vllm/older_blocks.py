"""Block hashes before vLLM 0.31, whose extra keys have no tags.

Source: vLLM 0.30.0, 0.23.0 and 0.18.0 ``v1/core/kv_cache_utils.py``
(`generate_block_hash_extra_keys`, `hash_block_tokens`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mmroute.errors import InexactError, RandomSeedError, Reason
from mmroute.hashing.algorithms import METHODS, Algorithm
from mmroute.hashing.chain import link_blocks
from mmroute.hashing.extra_keys import EventKeys, HashedItem, event_extra_keys, extra_keys
from mmroute.hashing.vllm import SET_SEED, BlockHashes, known_hashes, none_hash
from mmroute.requests.request import Lora
from mmroute.token_ids import TokenIds

_PROTOCOL: Final = 5


def untagged_keys(items: Iterable[HashedItem] = (), **arguments: Any) -> tuple[EventKeys, ...]:
    """The extra keys of blocks as events have them: vLLM 0.19 to 0.30."""
    return tuple(event_extra_keys(extra_keys(items, **arguments)) or ())


def identity_keys(
    items: Iterable[HashedItem] = (),
    *,
    num_blocks: int,
    block_size: int,
    lora: Lora | None = None,
    cache_salt: str | None = None,
) -> tuple[EventKeys, ...]:
    """The same for vLLM 0.13 to 0.18, where the key of an item is its identity alone.

    The block that begins directly behind an item has the key as well.
    """
    ordered = sorted(items, key=lambda item: item.offset)
    size = block_size
    blocks: list[EventKeys] = []
    current = 0
    for start in range(0, num_blocks * size, size):
        keys: list[str] = [lora.name] if lora is not None else []
        if ordered and ordered[-1].stop >= start:
            while current < len(ordered) and start + size > ordered[current].offset:
                if start > ordered[current].stop:
                    current += 1
                    continue
                keys.append(ordered[current].identity)
                if start + size < ordered[current].stop:
                    break
                current += 1
        if start == 0 and cache_salt:
            keys.append(cache_salt)
        blocks.append(tuple(keys) or None)
    return tuple(blocks)


def encode_block(parent: bytes, token_ids: tuple[int, ...], keys: EventKeys) -> bytes:
    """The bytes that are hashed for one block, its parent's hash among them."""
    # Each text is an object of its own in the engine; pickle refers back to a shared one.
    own = keys and tuple([
        (key[0].encode().decode(), key[1]) if isinstance(key, tuple) else key.encode().decode()
        for key in keys
    ])  # fmt: skip
    return pickle.dumps((parent, token_ids, own), protocol=_PROTOCOL)


def hash_older_blocks(
    token_ids: TokenIds,
    keys: Sequence[EventKeys],
    *,
    algorithm: str,
    block_size: int,
    seed: str | None,
    random_root: bool = False,
    previous: BlockHashes | None = None,
) -> BlockHashes:
    """The block hashes of vLLM before 0.31, by older keys; `random_root` needs a seed."""
    chosen = Algorithm(algorithm)
    if seed is None and random_root:
        raise RandomSeedError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"this version of vLLM draws the seed of its block hashes at random: {SET_SEED}",
        )
    if chosen not in (Algorithm.SHA256, Algorithm.XXHASH):
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"--prefix-caching-hash-algo {chosen} is not covered for this version of vLLM",
        )
    known = known_hashes(previous, token_ids, keys, (chosen, block_size, seed, 0))
    reused = len(known)
    hashes = known + link_blocks(
        token_ids[reused * block_size :],
        keys[reused:],
        known[-1] if known else none_hash(chosen, seed),
        block_size=block_size,
        encode=encode_block,
        digest=METHODS[chosen].digest,
    )
    return BlockHashes(hashes, chosen, block_size, seed, 0, reused, token_ids, keys)
