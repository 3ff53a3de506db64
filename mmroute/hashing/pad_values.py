"""The pad-value form: token IDs whose feature positions hold a number made from the image's hash.

Dynamo's router uses one number for every engine. Source: ``lib/kv-router/src/protocols.rs``
(`pad_value_for_mm_hash`, `hash_mm_identifier`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NewType

from xxhash import xxh3_64_intdigest

from mmroute.placement import PlaceholderRange
from mmroute.token_ids import TokenIds

PAD_SHIFT: Final = 1_000_000
"""The smallest pad value, above all token IDs."""
_MASK: Final = (1 << 30) - 1

_DIGEST: Final = re.compile(r"[0-9A-Fa-f]{64}")
_WORD_DIGITS: Final = 16


ImageHash = NewType("ImageHash", int)
"""The 64-bit number of an item, unsigned, by which routers tell it from others."""


def image_hash(identity: str) -> ImageHash:
    """The 64-bit number of an image identity, unsigned, as Dynamo's router makes it.

    The first 16 digits of a 64-digit hexadecimal hash, which is what vLLM's own identities are;
    xxh3_64 of the UTF-8 of any other identity, such as a client's uuid.

    >>> hex(image_hash("00000000deadbeef" + "0" * 48))
    '0xdeadbeef'
    """
    if not identity:
        raise ValueError("an empty image identity has no hash; give the image a uuid")
    if _DIGEST.fullmatch(identity):
        return ImageHash(int(identity[:_WORD_DIGITS], 16))
    return ImageHash(xxh3_64_intdigest(identity.encode()))


def pad_value(image_hash: int) -> int:
    """The number at an image's feature positions.

    >>> pad_value(0xDEADBEEF)
    515703087
    """
    return PAD_SHIFT + (image_hash & _MASK)


def pad_value_ids(token_ids: TokenIds, ranges: Iterable[tuple[PlaceholderRange, int]]) -> TokenIds:
    """The expanded prompt with `pad_value` at every feature position, shape (n,).

    >>> import numpy as np
    >>> prompt = np.array([1, 10, 10, 12, 4], dtype=np.uint32)
    >>> image = PlaceholderRange(0, 1, 3, ((True, 2), (False, 1)))
    >>> pad_value_ids(prompt, [(image, 5)]).tolist()
    [1, 1000005, 1000005, 12, 4]
    """
    padded = token_ids.copy()
    for placeholder, number in ranges:
        for start, stop in feature_runs(placeholder, len(padded)):
            padded[start:stop] = pad_value(number)
    return padded


def feature_runs(placeholder: PlaceholderRange, num_tokens: int) -> Iterator[tuple[int, int]]:
    """The start and stop of each run of feature positions in the prompt."""
    end = placeholder.offset + placeholder.length
    if placeholder.offset < 0 or end > num_tokens:
        raise ValueError(f"{placeholder} does not lie within the {num_tokens} tokens of the prompt")
    start = placeholder.offset
    for is_embed, count in placeholder.embed_runs or ((True, placeholder.length),):
        if is_embed:
            yield start, start + count
        start += count
