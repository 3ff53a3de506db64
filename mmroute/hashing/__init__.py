"""Block hashes and pad values of each engine, computed from token IDs and image identities."""

from mmroute.hashing.algorithms import Algorithm
from mmroute.hashing.digests import PageHashes
from mmroute.hashing.dynamo import DynamoHashes, local_block_hashes, sequence_hashes
from mmroute.hashing.extra_keys import (
    BlockKeys,
    EventKeys,
    ExtraKey,
    ExtraKeys,
    HashedItem,
    event_extra_keys,
    extra_keys,
)
from mmroute.hashing.pad_values import (
    ImageHash,
    image_hash,
    pad_value,
    pad_value_ids,
)
from mmroute.hashing.vllm import BlockHashes, hash_blocks, none_hash, num_hashed

__all__ = [
    "Algorithm", "BlockHashes", "BlockKeys", "DynamoHashes", "EventKeys", "ExtraKey", "ExtraKeys",
    "HashedItem", "ImageHash", "PageHashes", "event_extra_keys", "extra_keys", "hash_blocks",
    "image_hash", "local_block_hashes", "none_hash", "num_hashed", "pad_value",
    "pad_value_ids", "sequence_hashes",
]  # fmt: skip
