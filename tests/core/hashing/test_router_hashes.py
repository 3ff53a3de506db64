"""The hashes of Dynamo's router, and SGLang's pad values."""

from __future__ import annotations

import importlib.util
import struct
from typing import Any

import generate_dynamo
import numpy as np
import pytest
import xxhash
from comparison import read_vectors
from hypothesis import given
from hypothesis import strategies as st
from paths import VECTORS
from vector_files import requests_of

from mmroute.engines.sglang.hashes import wide_pad_value_ids, wide_pad_values
from mmroute.hashing import (
    HashedItem,
    image_hash,
    local_block_hashes,
    pad_value,
    pad_value_ids,
    sequence_hashes,
)
from mmroute.placement import PlaceholderRange
from mmroute.token_ids import TokenIds

DYNAMO_VECTORS = VECTORS / "block_hashes" / "dynamo.jsonl"
WIDE = (23533869762612420, 1115227388442326932, 406705440234023321, 2100304651902599146)


def prompt(*token_ids: int) -> TokenIds:
    return np.array(token_ids, np.uint32)


# Dynamo


def dynamo_hashes(case: dict[str, Any]) -> list[int]:
    return local_block_hashes(
        prompt(*case["token_ids"]),
        block_size=case["block_size"],
        items=[
            HashedItem(f"{number:016x}".ljust(64, "0"), offset, length)
            for number, offset, length in case.get("images", [])
        ],
        lora_name=case.get("lora_name"),
        namespace=case.get("namespace"),
    )


def test_dynamos_local_hashes() -> None:
    meta, cases = read_vectors(DYNAMO_VECTORS)
    assert meta["package_version"] == generate_dynamo.PACKAGE_VERSION
    assert len(cases) > 50
    wrong = [case for case in cases if dynamo_hashes(case) != case["expect"]]
    assert not wrong


if importlib.util.find_spec("dynamo"):

    def test_dynamos_vectors_are_those_of_the_installed_package() -> None:
        _, cases = read_vectors(DYNAMO_VECTORS)
        assert [case["expect"] for case in cases] == list(
            map(generate_dynamo.expected, requests_of(DYNAMO_VECTORS))
        )


def test_dynamos_sequence_hashes() -> None:
    local = [2**64 - 1, 0, 12345]
    chained = local[:1]
    for number in local[1:]:
        data = struct.pack("<QQ", chained[-1], number)
        chained.append(xxhash.xxh3_64_intdigest(data, seed=1337))
    assert sequence_hashes(local) == chained
    assert sequence_hashes([]) == []


def test_dynamos_hashes_of_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="block_size must be an integer of at least 1, found 0"):
        local_block_hashes(prompt(1), block_size=0)
    with pytest.raises(ValueError, match="empty image identity"):
        local_block_hashes(prompt(1), block_size=1, items=[HashedItem("", 0, 1)])
    with pytest.raises(ValueError, match="one row of uint32"):
        local_block_hashes([1], block_size=1)  # type: ignore[arg-type]  # what a caller may do


# Pad values


def test_image_hash_of_identities() -> None:
    digest = "0123456789ABCDEF" + "f" * 48
    assert image_hash(digest) == image_hash(digest.lower()) == 0x0123456789ABCDEF
    for uuid in ("my-cat", "0123456789abcdef", digest[1:], digest + "0", "é" * 64, "٣" * 64):
        assert image_hash(uuid) == xxhash.xxh3_64_intdigest(uuid.encode())
    with pytest.raises(ValueError, match="empty image identity"):
        image_hash("")


@given(st.integers(0, 2**64 - 1))
def test_pad_value_keeps_30_bits(number: int) -> None:
    """As SGLang 0.5.13 to 0.5.22 write it: ``MM_PAD_SHIFT_VALUE + (hash % (1 << 30))``."""
    assert pad_value(number) == 1_000_000 + number % (1 << 30)
    assert pad_value(number) < 2**32


def test_pad_values_go_to_feature_positions_only() -> None:
    ids = prompt(1, 10, 10, 12, 10, 10, 13, 2, 10, 4)
    rows = PlaceholderRange(0, 1, 6, ((True, 2), (False, 1), (True, 2), (False, 1)))
    whole = PlaceholderRange(1, 8, 1)
    padded = pad_value_ids(ids, [(rows, 5), (whole, 2**30 + 6)])
    assert padded.dtype == np.uint32
    a, b = 1_000_005, 1_000_006
    assert padded.tolist() == [1, a, a, 12, a, a, 13, 2, b, 4]
    assert ids[1] == 10


def test_wide_pad_values_take_turns_in_each_run() -> None:
    """The four numbers are those of SGLang 0.5.23's `_compute_pad_values` for the same hash."""
    a, b, c, d = wide_pad_values(0x0123456789ABCDEF)
    assert (a, b, c, d) == WIDE
    ids = np.full(10, 10, dtype=np.uint32)
    runs = PlaceholderRange(0, 1, 9, ((True, 5), (False, 1), (True, 2), (False, 1)))
    padded = wide_pad_value_ids(ids, [(runs, 0x0123456789ABCDEF)])
    assert padded.dtype == np.int64
    assert padded.tolist() == [10, a, b, c, d, a, 10, a, b, 10]


@pytest.mark.parametrize("outside", [PlaceholderRange(0, 1, 2), PlaceholderRange(0, -1, 2)])
def test_pad_values_outside_the_prompt_are_refused(outside: PlaceholderRange) -> None:
    for form in (pad_value_ids, wide_pad_value_ids):
        with pytest.raises(ValueError, match="does not lie within the 2 tokens"):
            form(prompt(1, 2), [(outside, 5)])
