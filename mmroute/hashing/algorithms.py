"""The algorithms of vLLM's block hashes: what is hashed, and by what.

Source: vLLM ``utils/hashing.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, Never, Protocol

import xxhash

from mmroute.errors import did_you_mean, quoted
from mmroute.hashing import cbor_encoding, pickle_encoding
from mmroute.hashing.extra_keys import BlockKeys, BlockLayout, ExtraKeys


class Algorithm(StrEnum):
    """The values of vLLM's ``--prefix-caching-hash-algo``; its default is ``sha256``."""

    SHA256 = "sha256"
    SHA256_CBOR = "sha256_cbor"
    XXHASH = "xxhash"
    XXHASH_CBOR = "xxhash_cbor"

    @classmethod
    def _missing_(cls, value: object) -> Never:
        hint = did_you_mean(str(value), map(str, cls))
        raise ValueError(f"there is no hash algorithm {quoted(value)}, only {', '.join(cls)}{hint}")


class _Encoding(Protocol):
    def encode_text(self, text: str) -> bytes: ...

    def encode_block(
        self,
        parent: bytes,
        token_ids: tuple[int, ...],
        keys: BlockKeys,
        ahead: tuple[int, ...] = (),
    ) -> bytes: ...

    def layout(self, keys: ExtraKeys, *, parent_size: int) -> BlockLayout: ...

    def endings(
        self, keys: ExtraKeys, ahead: Sequence[Sequence[int]]
    ) -> dict[int, bytes] | None: ...


@dataclass(frozen=True, slots=True)
class Method:
    """The parts of an algorithm: an encoding of blocks, and a digest."""

    encoding: _Encoding  # the functions that write the bytes to hash
    digest: Callable[[bytes], bytes]  # returns the hash of bytes
    digest_size: int  # the number of bytes of a hash
    secret_seed: bool  # whether the engine draws the seed at random if PYTHONHASHSEED is not set


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


METHODS: Final[Mapping[Algorithm, Method]] = {
    Algorithm.SHA256: Method(pickle_encoding, _sha256, 32, secret_seed=False),
    Algorithm.SHA256_CBOR: Method(cbor_encoding, _sha256, 32, secret_seed=False),
    Algorithm.XXHASH: Method(pickle_encoding, xxhash.xxh3_128_digest, 16, secret_seed=True),
    Algorithm.XXHASH_CBOR: Method(cbor_encoding, xxhash.xxh3_128_digest, 16, secret_seed=True),
}
