"""The pad-value form: token IDs whose feature positions hold a number made from the image's hash.

SGLang replaces every feature position by a number made from the image's hash, so that its radix
cache tells images apart by token IDs alone. Source: ``srt/managers/schedule_batch.py`` and
``tokenizer_manager.py`` of SGLang 0.5.13, 0.5.18, 0.5.22 (one number for an image) and 0.5.23
(four wide ones, in turn). Dynamo's router uses the one number for every engine; source:
``lib/kv-router/src/protocols.rs`` (`pad_value_for_mm_hash`, `hash_mm_identifier`).

SGLang uses a caller's hash only if the request has ``mm_hashes``, one for each image. Send
``f"{image_hash(identity):016x}"``: SGLang reads all digits and keeps the *last* 64 bits, so that
a longer string gives another hash than `image_hash`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NewType

import numpy as np
from xxhash import xxh3_64_intdigest

from mmroute.placement import PlaceholderRange
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    import numpy.typing as npt

_SHIFT: Final = 1_000_000
_MASK: Final = (1 << 30) - 1

_WIDE_TAG: Final = b"sglang-mm-wide-pad-v1"
_WIDE_MASK: Final = (1 << 62) - 1
_WORD_BYTES: Final = 8

_DIGEST: Final = re.compile(r"[0-9A-Fa-f]{64}")
_WORD_DIGITS: Final = 16


ImageHash = NewType("ImageHash", int)
"""The 64-bit number of an item, unsigned, by which routers tell it from others."""


def image_hash(identity: str) -> ImageHash:
    """The 64-bit number of an image identity, unsigned, as Dynamo's router makes it.

    The first 16 digits of a 64-digit hexadecimal hash, which is what vLLM's own identities are;
    xxh3_64 of the UTF-8 of any other identity, such as a client's uuid.

    Raises:
        ValueError: an empty identity, which Dynamo has no number for, or one that is not valid
            Unicode.

    >>> hex(image_hash("00000000deadbeef" + "0" * 48))
    '0xdeadbeef'
    """
    if not identity:
        raise ValueError("an empty image identity has no hash; give the image a uuid")
    if _DIGEST.fullmatch(identity):
        return ImageHash(int(identity[:_WORD_DIGITS], 16))
    return ImageHash(xxh3_64_intdigest(identity.encode()))


def pad_value(image_hash: int) -> int:
    """The number at an image's feature positions, for Dynamo and SGLang 0.5.13 to 0.5.22.

    >>> pad_value(0xDEADBEEF)
    515703087
    """
    return _SHIFT + (image_hash & _MASK)


def wide_pad_values(image_hash: int) -> tuple[int, ...]:
    """The four numbers that take turns at an image's feature positions in SGLang.

    Raises:
        OverflowError: a hash that is not 64 bits, unsigned.
    """
    digest = hashlib.sha256(_WIDE_TAG + image_hash.to_bytes(_WORD_BYTES, "big")).digest()
    words = (digest[start : start + _WORD_BYTES] for start in range(0, len(digest), _WORD_BYTES))
    return tuple(_SHIFT + (int.from_bytes(word, "big") & _WIDE_MASK) for word in words)


def pad_value_ids(token_ids: TokenIds, ranges: Iterable[tuple[PlaceholderRange, int]]) -> TokenIds:
    """The expanded prompt with `pad_value` at every feature position, shape (n,).

    Args:
        token_ids: the expanded prompt, shape (n,); not changed.
        ranges: the range of each image, and the image's hash.

    Raises:
        ValueError: a range that does not lie within the prompt.

    >>> prompt = np.array([1, 10, 10, 12, 4], dtype=np.uint32)
    >>> image = PlaceholderRange(0, 1, 3, ((True, 2), (False, 1)))
    >>> pad_value_ids(prompt, [(image, 5)]).tolist()
    [1, 1000005, 1000005, 12, 4]
    """
    padded = token_ids.copy()
    for placeholder, number in ranges:
        for start, stop in _feature_runs(placeholder, len(padded)):
            padded[start:stop] = pad_value(number)
    return padded


def wide_pad_value_ids(
    token_ids: TokenIds, ranges: Iterable[tuple[PlaceholderRange, int]]
) -> npt.NDArray[np.int64]:
    """The expanded prompt with `wide_pad_values`, which start again in each run of features.

    Args:
        token_ids: the expanded prompt, shape (n,); not changed.
        ranges: the range of each image, and the image's hash.

    Returns:
        An array of shape (n,).

    Raises:
        ValueError: a range that does not lie within the prompt.
        OverflowError: a hash that is not 64 bits, unsigned.
    """
    padded = token_ids.astype(np.int64)
    for placeholder, number in ranges:
        values = np.array(wide_pad_values(number))
        for start, stop in _feature_runs(placeholder, len(padded)):
            padded[start:stop] = np.resize(values, stop - start)
    return padded


def _feature_runs(placeholder: PlaceholderRange, num_tokens: int) -> Iterator[tuple[int, int]]:
    """The start and stop of each run of feature positions in the prompt."""
    end = placeholder.offset + placeholder.length
    if placeholder.offset < 0 or end > num_tokens:
        raise ValueError(f"{placeholder} does not lie within the {num_tokens} tokens of the prompt")
    start = placeholder.offset
    for is_embed, count in placeholder.embed_runs or ((True, placeholder.length),):
        if is_embed:
            yield start, start + count
        start += count
