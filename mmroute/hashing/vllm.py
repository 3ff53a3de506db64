"""The hashes vLLM gives to the full blocks of a request, and publishes in KV events.

Source: vLLM ``v1/core/kv_cache_utils.py`` (`init_none_hash`, `hash_block_tokens`,
`get_request_block_hasher`, `maybe_convert_block_hash`) and
``utils/hashing.py``. It holds for an engine core in a process of its own, vLLM's default: only
there has a request passed through msgpack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from mmroute.errors import RandomSeedError, Reason, quoted
from mmroute.hashing.algorithms import METHODS, Algorithm
from mmroute.hashing.chain import hash_chain
from mmroute.hashing.digests import Digests
from mmroute.hashing.extra_keys import (
    BlockKeys,
    EventKeys,
    ExtraKeys,
    check_block_size,
    check_token_ids,
)
from mmroute.token_ids import TokenIds

_DEFAULT_SEED: Final = "vllm-none-hash"
_EVENT_BYTES: Final = 8
SET_SEED: Final = (
    "set PYTHONHASHSEED in the engine's environment, and give mmroute the same value: in front of "
    "the command line in --engine-args, or as --hash-seed (in Python: EngineSettings.from_args, or "
    "seed)"
)
"""What to do where an engine draws its seed at random."""


def event_int(block_hash: bytes) -> int:
    """A block hash as a 64-bit integer, unsigned: its low bytes (`maybe_convert_block_hash`)."""
    return int.from_bytes(block_hash[-_EVENT_BYTES:], "big")


@dataclass(frozen=True, slots=True, repr=False)
class BlockHashes(Digests):
    """The hashes of a request's full blocks, in their order. Immutable."""

    algorithm: Algorithm  # the algorithm that computed them
    block_size: int  # the number of tokens in a block
    seed: str | None  # the engine's PYTHONHASHSEED; None if it is not set
    lookahead: int  # the number of tokens behind a block that its hash covers as well
    # The number of hashes that were reused from an earlier prompt.
    reused: int = field(compare=False)
    _token_ids: TokenIds = field(compare=False)
    _extra_keys: ExtraKeys | Sequence[EventKeys] = field(compare=False)

    def event_ints(self) -> list[int]:
        """The hashes as events carry them with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=1, unsigned."""
        return list(map(event_int, self.hashes))

    def num_shared(self, token_ids: TokenIds, keys: ExtraKeys | Sequence[EventKeys]) -> int:
        """The number of leading blocks that two prompts share, or a few less."""
        mine = self._extra_keys
        if isinstance(mine, ExtraKeys) is not isinstance(keys, ExtraKeys):
            return 0
        length = min(len(self._token_ids), len(token_ids))
        differ = np.flatnonzero(self._token_ids[:length] != token_ids[:length])
        same = int(differ[0]) if len(differ) else length
        count = max(0, same - self.lookahead) // self.block_size
        if isinstance(mine, ExtraKeys) and isinstance(keys, ExtraKeys):
            return min(count, mine.in_common(keys))
        return next((block for block in range(count) if mine[block] != keys[block]), count)


def hash_blocks(
    token_ids: TokenIds,
    extra_keys: Sequence[BlockKeys] | None = None,
    *,
    algorithm: str = Algorithm.SHA256,
    block_size: int = 16,
    seed: str | None = None,
    lookahead: int = 0,
    previous: BlockHashes | None = None,
) -> BlockHashes:
    """The hashes of a request's full blocks; tokens after the last full block have none.

    With lookahead tokens, a block has no hash until all tokens that its hash covers are there.

    >>> turn = hash_blocks(np.arange(40, dtype=np.uint32))
    >>> [digest[:8] for digest in turn.hex()]
    ['fe8fa5dd', '8be7aaa3']
    >>> hash_blocks(np.arange(70, dtype=np.uint32), previous=turn)[:2] == turn[:]
    True
    """
    chosen = Algorithm(algorithm)
    parent = none_hash(chosen, seed)
    check_block_size(block_size, lookahead)
    check_token_ids(token_ids)
    num_blocks = num_hashed(len(token_ids), block_size, lookahead)
    keys = ExtraKeys(block_size, num_blocks)
    if extra_keys is not None:
        if len(extra_keys) != num_blocks:
            raise ValueError(f"{num_blocks} full blocks, but extra keys for {len(extra_keys)}")
        keys = ExtraKeys.of_blocks(extra_keys, block_size)
    # A copy: what `previous` holds must be what was hashed, whatever the caller does to it later.
    ids = token_ids[: num_blocks * block_size + lookahead].copy()
    ids.setflags(write=False)
    hashes = known_hashes(previous, ids, keys, (chosen, block_size, seed, lookahead))
    parent = hashes[-1] if hashes else parent
    reused = len(hashes)
    if reused < num_blocks:
        rest = ids[reused * block_size :]
        hashes += hash_chain(chosen, rest, keys.behind(reused), parent, lookahead)
    return BlockHashes(hashes, chosen, block_size, seed, lookahead, reused, ids, keys)


def num_hashed(num_tokens: int, block_size: int, lookahead: int = 0) -> int:
    """The number of blocks that have a hash.

    >>> num_hashed(32, 16), num_hashed(32, 16, lookahead=1)
    (2, 1)
    """
    return max(0, num_tokens - lookahead) // block_size


def known_hashes(
    previous: BlockHashes | None,
    token_ids: TokenIds,
    keys: ExtraKeys | Sequence[EventKeys],
    settings: tuple[Algorithm, int, str | None, int],
) -> tuple[bytes, ...]:
    """The hashes that an earlier prompt's leading blocks share with this prompt."""
    if previous is None:
        return ()
    if not isinstance(previous, BlockHashes):
        raise ValueError(f"previous must be BlockHashes or None, found {quoted(previous)}")
    if (previous.algorithm, previous.block_size, previous.seed, previous.lookahead) != settings:
        return ()
    return previous.hashes[: previous.num_shared(token_ids, keys)]


@lru_cache(maxsize=128)
def none_hash(algorithm: str, seed: str | None) -> bytes:
    """The hash that stands in for the parent of the first block.

    >>> none_hash("sha256", None).hex()[:16]
    '066b1e8987e02713'
    """
    chosen = Algorithm(algorithm)
    method = METHODS[chosen]
    if seed is None:
        if method.secret_seed:
            raise RandomSeedError(
                Reason.UNSUPPORTED_ENGINE_SETTING,
                f"with {chosen} each engine process draws its seed at random: {SET_SEED}",
            )
        seed = _DEFAULT_SEED
    if not isinstance(seed, str):
        raise ValueError(f"the seed is PYTHONHASHSEED as text, such as '0'; found {quoted(seed)}")
    return method.digest(method.encoding.encode_text(seed))
