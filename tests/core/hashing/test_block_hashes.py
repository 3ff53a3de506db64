"""Block hashes: the encoders against pickle and cbor2, the chain against a port of the engine's."""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from typing import Any

import cbor2
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mmroute.hashing import (
    Algorithm,
    BlockHashes,
    BlockKeys,
    ExtraKeys,
    cbor_encoding,
    chain,
    hash_blocks,
    none_hash,
    pickle_encoding,
)
from mmroute.token_ids import TokenIds

SEED = "7"


def prompt(*token_ids: int) -> TokenIds:
    return np.array(token_ids, dtype=np.uint32)


# Token IDs on both sides of every change of width, and strings on both sides of every change of
# length, of CPython's own singletons, and equal to the engine's literals.
EDGES = (0, 23, 24, 255, 256, 65535, 65536, 2**24, 2**31 - 1)


def some_ids(seed: int, count: int) -> TokenIds:
    """From a seed: to draw each would be most of a test's time."""
    chosen = random.Random(seed)
    limit = chosen.choice((2**8, 2**17, 2**31))
    edges = [edge for edge in EDGES if edge < limit]
    return prompt(
        *(chosen.choice((chosen.choice(edges), chosen.randrange(limit))) for _ in range(count))
    )


seeds = st.integers(0, 2**32)
texts = st.one_of(
    st.sampled_from(["", "a", "é", "ÿ", "Ā", "mm", "lora", "cache_salt", "🐈", "0" * 64]),
    st.sampled_from(["x" * 23, "x" * 24, "x" * 255, "x" * 256, "ü" * 127, "ü" * 128, "x" * 66000]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
)
offsets = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-300, 300))
image_keys = st.tuples(st.just("mm"), texts, offsets)
other_keys = st.one_of(
    st.tuples(st.just("lora"), texts, texts),
    st.tuples(st.just("cache_salt"), texts),
)
block_keys = st.one_of(
    st.none(),
    st.tuples(image_keys),
    st.lists(st.one_of(image_keys, other_keys), min_size=1, max_size=7).map(tuple),
)


def as_block_keys(keys: Any) -> tuple[BlockKeys, ...]:
    """Drawn keys: hypothesis does not know their literal types."""
    return tuple(keys)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[int, TokenIds, tuple[BlockKeys, ...]]:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 16, 17]))
    count = draw(st.integers(1, 5))
    size = block_size * count
    keys = draw(st.lists(block_keys, min_size=count, max_size=count))
    return block_size, some_ids(draw(seeds), size), as_block_keys(keys)


def as_engine(keys: Any) -> Any:
    """Extra keys as the engine has them: literal tags, other strings objects of their own."""
    return keys and tuple(
        (sys.intern(tag), *(v.encode().decode() if isinstance(v, str) else v for v in values))
        for tag, *values in keys
    )


def pickled(parent: bytes, ids: TokenIds, keys: BlockKeys) -> bytes:
    return pickle.dumps((parent, tuple(ids.tolist()), as_engine(keys)), protocol=5)


def cbored(parent: bytes, ids: TokenIds, keys: BlockKeys) -> bytes:
    return cbor2.dumps((parent, tuple(ids.tolist()), keys), canonical=True)


@given(blocks())
@settings(max_examples=20)
def test_encoders_write_what_pickle_and_cbor2_write(
    case: tuple[int, TokenIds, tuple[BlockKeys, ...]],
) -> None:
    block_size, ids, keys = case
    parent = b"p" * 16
    for row, block in zip(ids.reshape(-1, block_size), keys, strict=True):
        given = tuple(row.tolist())
        assert pickle_encoding.encode_block(parent, given, block) == pickled(parent, row, block)
        assert cbor_encoding.encode_block(parent, given, block) == cbored(parent, row, block)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_encoders_of_the_seed(text: str) -> None:
    assert pickle_encoding.encode_text(text) == pickle.dumps(text, protocol=5)
    assert cbor_encoding.encode_text(text) == cbor2.dumps(text, canonical=True)


# The chain


def from_scratch(
    ids: TokenIds, keys: tuple[BlockKeys, ...], algorithm: Algorithm, block_size: int
) -> list[bytes]:
    """vLLM's `hash_block_tokens`, block by block."""
    dumps = cbored if algorithm.endswith("cbor") else pickled

    def digest(data: bytes) -> bytes:
        if algorithm.startswith("xxhash"):
            return xxhash.xxh3_128_digest(data)
        return hashlib.sha256(data).digest()

    seed = cbor2.dumps(SEED) if dumps is cbored else pickle.dumps(SEED, protocol=5)
    parent = digest(seed)
    hashes = []
    rows = ids[: len(keys) * block_size].reshape(-1, block_size)
    for row, block in zip(rows, keys, strict=True):
        parent = digest(dumps(parent, row, block))
        hashes.append(parent)
    return hashes


@pytest.mark.parametrize("algorithm", Algorithm)
@given(blocks(), st.integers(0, 15))
def test_hashes_are_chained(
    algorithm: Algorithm, case: tuple[int, TokenIds, tuple[BlockKeys, ...]], rest: int
) -> None:
    block_size, ids, keys = case
    whole = np.concatenate([ids, some_ids(0, min(rest, block_size - 1))])
    hashes = hash_blocks(whole, keys, algorithm=algorithm, block_size=block_size, seed=SEED)
    assert list(hashes) == from_scratch(ids, keys, algorithm, block_size)


@given(blocks(), st.data())
@settings(max_examples=20)
def test_previous_hashes_change_nothing(
    case: tuple[int, TokenIds, tuple[BlockKeys, ...]], data: st.DataObject
) -> None:
    """Whatever differs: a token, a key, the length, nothing."""
    block_size, ids, keys = case
    old_ids, old_keys = ids.copy(), list(keys)
    if data.draw(st.booleans()):
        old_ids[data.draw(st.integers(0, len(ids) - 1))] ^= data.draw(
            st.sampled_from([1, 2**16, 2**31])
        )
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(keys) - 1))
        old_keys[at] = as_block_keys([data.draw(block_keys)])[0]
    kept = data.draw(st.integers(0, len(keys)))
    previous = hash_blocks(old_ids[: kept * block_size], old_keys[:kept], block_size=block_size)
    expected = hash_blocks(ids, keys, block_size=block_size)
    found = hash_blocks(ids, keys, block_size=block_size, previous=previous)
    assert found.hashes == expected.hashes


def test_previous_hashes_are_taken_over_up_to_the_first_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[int] = []
    hash_chain = chain.hash_chain

    def counting(algorithm: Algorithm, ids: TokenIds, keys: ExtraKeys, *rest: Any) -> Any:
        hashed.append(len(keys))
        return hash_chain(algorithm, ids, keys, *rest)

    monkeypatch.setattr("mmroute.hashing.vllm.hash_chain", counting)
    ids = np.arange(160, dtype=np.uint32)
    keys: list[BlockKeys] = [None] * 10
    previous = hash_blocks(ids, keys)
    longer = np.arange(200, dtype=np.uint32)
    other_token = ids.copy()
    other_token[16 * 7 + 3] = 0
    other_key: list[BlockKeys] = [*keys[:4], (("mm", "cat", 0),), *keys[5:]]
    assert hash_blocks(ids, keys, previous=previous).hashes == previous.hashes
    hash_blocks(longer, previous=previous)
    hash_blocks(ids[:40], previous=previous)
    hash_blocks(other_token, keys, previous=previous)
    hash_blocks(ids, other_key, previous=previous)
    hash_blocks(other_token, other_key, previous=previous)
    hash_blocks(ids, keys, previous=previous, seed="1")
    hash_blocks(ids, keys, previous=previous, block_size=16, algorithm="sha256")
    assert hashed == [10, 2, 3, 6, 6, 10]


def test_previous_hashes_of_other_settings_are_not_taken() -> None:
    ids = np.arange(64, dtype=np.uint32)
    previous = hash_blocks(ids, algorithm="xxhash", block_size=16, seed="1")
    for other in (
        {"algorithm": "xxhash_cbor", "block_size": 16, "seed": "1"},
        {"algorithm": "xxhash", "block_size": 8, "seed": "1"},
        {"algorithm": "xxhash", "block_size": 16, "seed": "2"},
    ):
        settings: Any = other
        assert list(hash_blocks(ids, **settings, previous=previous)) == list(
            hash_blocks(ids, **settings)
        )


def test_previous_hashes_do_not_follow_the_callers_array() -> None:
    ids = np.zeros(32, dtype=np.uint32)
    previous = hash_blocks(ids)
    ids[:] = 1
    assert list(hash_blocks(ids, previous=previous)) == list(hash_blocks(ids))


def test_block_hashes_are_a_sequence() -> None:
    hashes = hash_blocks(np.arange(50, dtype=np.uint32))
    assert isinstance(hashes, BlockHashes)
    assert (len(hashes), hashes.algorithm, hashes.block_size, hashes.seed) == (
        3,
        "sha256",
        16,
        None,
    )
    assert [*hashes] == [hashes[0], hashes[1], hashes[-1]]
    assert hashes[1:] == (hashes[1], hashes[2])
    assert hashes[1] in hashes
    assert [bytes.fromhex(digits) for digits in hashes.hex()] == [*hashes]
    # vLLM's `maybe_convert_block_hash`.
    assert hashes.event_ints() == [int.from_bytes(h, "big") & ((1 << 64) - 1) for h in hashes]
    assert "token_ids" not in repr(hashes)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_fewer_tokens_than_a_block_have_no_hash(algorithm: Algorithm) -> None:
    for count in (0, 15):
        ids = np.zeros(count, dtype=np.uint32)
        assert len(hash_blocks(ids, algorithm=algorithm, seed=SEED)) == 0


def test_the_first_parent_follows_from_the_seed() -> None:
    assert none_hash("sha256", None) == none_hash("sha256", "vllm-none-hash")
    assert none_hash("sha256", None) != none_hash("sha256", "0") != none_hash("sha256", "")
    for algorithm in ("xxhash", "xxhash_cbor"):
        assert len(none_hash(algorithm, "0")) == 16
        with pytest.raises(ValueError, match=r"draws its seed at random.* set PYTHONHASHSEED"):
            none_hash(algorithm, None)
        with pytest.raises(ValueError, match="PYTHONHASHSEED"):
            hash_blocks(prompt(), algorithm=algorithm)


def test_wrong_settings_are_named() -> None:
    ids = np.arange(32, dtype=np.uint32)
    wrong: Any = 5
    with pytest.raises(ValueError, match=r"sha256, sha256_cbor, .*; did you mean 'xxhash_cbor'\?"):
        hash_blocks(ids, algorithm="xxhash-cbor")
    with pytest.raises(ValueError, match="no hash algorithm 5, only sha256"):
        none_hash(wrong, None)
    for wrong in (0, -1, 1.5, True, "16", None):
        with pytest.raises(ValueError, match="block_size must be an integer of at least 1"):
            hash_blocks(ids, block_size=wrong)
    wrong = 0
    with pytest.raises(ValueError, match="as text, such as '0'; found 0"):
        hash_blocks(ids, seed=wrong)
    with pytest.raises(ValueError, match="2 full blocks, but extra keys for 1"):
        hash_blocks(ids, [None])
    wrong = ids.astype(np.int64)
    with pytest.raises(ValueError, match="as a numpy array; found int64 of shape"):
        hash_blocks(wrong)
    with pytest.raises(ValueError, match=r"as a numpy array; found uint32 of shape \(2, 16\)"):
        hash_blocks(ids.reshape(2, 16))
    for algorithm in Algorithm:
        with pytest.raises(UnicodeEncodeError):
            hash_blocks(ids[:16], [(("cache_salt", "\ud800"),)], algorithm=algorithm, seed="0")
