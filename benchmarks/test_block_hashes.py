"""What the block hashes of one prompt cost, beside the way the engine computes them.

    python -m pytest benchmarks --benchmark-only

The prompt: 5,000 token IDs, blocks of 16; with four images in it, or without. The peer hashes
each block as vLLM 0.33.0's `hash_block_tokens` does; where vLLM is installed it is vLLM's own
function. Every answer that is timed is compared first.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xxhash

from mmroute.hashing import (
    BlockHashes,
    BlockKeys,
    HashedItem,
    extra_keys,
    hash_blocks,
    local_block_hashes,
    none_hash,
    sequence_hashes,
)

try:
    from vllm.v1.core.kv_cache_utils import hash_block_tokens
except ImportError:

    def hash_block_tokens(
        function: Callable[[Any], bytes], parent: bytes, ids: Sequence[int], keys: BlockKeys
    ) -> bytes:
        """The same lines."""
        return function((parent, tuple(ids), keys))


Benchmark = Any  # pytest-benchmark's fixture has no public type

NUM_IDS = 5000
BLOCK_SIZE = 16
NUM_BLOCKS = NUM_IDS // BLOCK_SIZE
SEED = "0"
IDS = np.random.default_rng(0).integers(0, 151_000, NUM_IDS).astype(np.uint32)
IMAGES = [HashedItem(f"{i:064x}", 40 + 1240 * i, 1200) for i in range(4)]
KEYS = {
    "text": (None,) * NUM_BLOCKS,
    "images": extra_keys(IMAGES, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE),
}
DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "xxhash": xxhash.xxh3_128_digest,
}


def peer(algorithm: str, ids: Sequence[int], keys: Sequence[BlockKeys]) -> list[bytes]:
    digest = DIGESTS[algorithm]

    def function(value: object) -> bytes:
        return digest(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    hashes = [none_hash(algorithm, SEED)]
    for i, key in enumerate(keys):
        block = ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
        hashes.append(hash_block_tokens(function, hashes[-1], block, key))
    return hashes[1:]


def ours(algorithm: str, keys: Sequence[BlockKeys]) -> BlockHashes:
    return hash_blocks(IDS, keys, algorithm=algorithm, block_size=BLOCK_SIZE, seed=SEED)


@pytest.mark.parametrize("prompt", KEYS)
@pytest.mark.parametrize("algorithm", DIGESTS)
def test_block_hashes(benchmark: Benchmark, algorithm: str, prompt: str) -> None:
    hashes = benchmark(ours, algorithm, KEYS[prompt])
    assert list(hashes) == peer(algorithm, IDS.tolist(), KEYS[prompt])


@pytest.mark.parametrize("prompt", KEYS)
@pytest.mark.parametrize("algorithm", DIGESTS)
def test_peer_hashes_block_by_block(benchmark: Benchmark, algorithm: str, prompt: str) -> None:
    hashes = benchmark(peer, algorithm, IDS.tolist(), KEYS[prompt])
    assert hashes == list(ours(algorithm, KEYS[prompt]))


def test_one_more_turn(benchmark: Benchmark) -> None:
    known = hash_blocks(IDS[: NUM_IDS - 100], KEYS["text"][: (NUM_IDS - 100) // BLOCK_SIZE])
    hashes = benchmark(hash_blocks, IDS, KEYS["text"], previous=known)
    assert hashes[:] == hash_blocks(IDS, KEYS["text"])[:]


def test_dynamos_local_hashes(benchmark: Benchmark) -> None:
    hashes = benchmark(local_block_hashes, IDS, block_size=BLOCK_SIZE)
    assert hashes[0] == xxhash.xxh3_64_intdigest(IDS[:BLOCK_SIZE].tobytes(), seed=1337)
    assert len(hashes) == NUM_BLOCKS


def test_dynamos_sequence_hashes(benchmark: Benchmark) -> None:
    local = local_block_hashes(IDS, block_size=BLOCK_SIZE)
    hashes = benchmark(sequence_hashes, local)
    assert (hashes[0], len(hashes)) == (local[0], NUM_BLOCKS)
