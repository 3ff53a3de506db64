"""The local and sequence hashes of Dynamo's router.

Every rule of `local_block_hashes` was checked against ``dynamo._core.compute_block_hash_for_seq``
of ai-dynamo-runtime 1.6.1. That package does not show its chaining: `sequence_hashes` follows
Dynamo's source, ``lib/kv-router/src/protocols.rs`` (`compute_seq_hash_for_block`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from mmroute.hashing.chain import hash_words, link_words
from mmroute.hashing.extra_keys import HashedItem, check_block_size, check_token_ids
from mmroute.hashing.pad_values import image_hash
from mmroute.token_ids import TokenIds

_SEED: Final = 1337
_LORA_SEED: Final = 0
_NAMESPACE_SEED: Final = 1
_WORD: Final = 1 << 64


class DynamoHashes(NamedTuple):
    """The hashes of a prompt's full blocks, as Dynamo's router makes them: unsigned, 64 bits."""

    local: list[int]  # the hash of each block by itself
    sequence: list[int]  # the hash of each block with all blocks before it


def local_block_hashes(
    token_ids: TokenIds,
    *,
    block_size: int,
    items: Iterable[HashedItem] = (),
    lora_name: str | None = None,
    namespace: str | None = None,
) -> list[int]:
    """The unchained hash of each full block: unsigned, 64 bits.

    It covers the block's token IDs and the hashes of the images that have a token in it, not
    where they stand. Dynamo's router gives either `items`, or token IDs that hold pad values
    (`mmroute.hashing.pad_value_ids`) and no items: never both.

    >>> ids = np.arange(1, 9, dtype=np.uint32)
    >>> cat = HashedItem(f"{7:016x}".ljust(64, "0"), 2, 2)
    >>> local_block_hashes(ids, block_size=4, items=[cat])
    [5863904876152881626, 16777012769546811212]
    """
    check_block_size(block_size)
    check_token_ids(token_ids)
    seed = _SEED
    if lora_name:
        seed += xxh3_64_intdigest(lora_name.encode(), _LORA_SEED)
    if namespace:
        seed += xxh3_64_intdigest(namespace.encode(), _NAMESPACE_SEED)
    seed %= _WORD
    num_blocks = len(token_ids) // block_size
    data = token_ids[: num_blocks * block_size].astype("<u4", copy=False).tobytes()
    step = block_size * np.dtype("<u4").itemsize
    hashes = hash_words(data, step, seed)
    for block, numbers in _images_by_block(items, block_size, num_blocks).items():
        block_data = data[block * step : (block + 1) * step]
        images = np.array(sorted(numbers), "<u8").tobytes()
        hashes[block] = xxh3_64_intdigest(block_data + images, seed)
    return hashes


def sequence_hashes(local_hashes: Iterable[int]) -> list[int]:
    """The chained hash of each block, which covers all blocks before it: unsigned, 64 bits.

    >>> sequence_hashes([1, 2])
    [1, 16740963408272063728]
    """
    return link_words(local_hashes, _SEED)


def _images_by_block(
    items: Iterable[HashedItem], block_size: int, num_blocks: int
) -> Mapping[int, list[int]]:
    blocks: defaultdict[int, list[int]] = defaultdict(list)
    for item in items:
        number = image_hash(item.identity)
        for block in range(item.offset // block_size, min(-(-item.stop // block_size), num_blocks)):
            blocks[block].append(number)
    return blocks
