"""The hashes SGLang gives to the full pages of a prompt, and publishes in KV events.

They cover token IDs with four wide numbers in turn at the positions of an image's features, so that
its radix cache tells images apart by token IDs alone. SGLang uses a caller's hash of an image only
if the request has ``mm_hashes``, one for each image. Send ``f"{image_hash(identity):016x}"``:
SGLang reads all digits and keeps the *last* 64 bits, so that a longer string gives another hash
than `mmroute.hashing.image_hash`.

Source: SGLang ``srt/mem_cache/utils.py`` (`compute_node_event_hash_values`,
`hash_str_to_int64`), ``radix_cache.py``, ``srt/managers/schedule_batch.py`` and
``tokenizer_manager.py``. The hashes hold for requests without a LoRA adapter and without
``extra_key``.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np

from mmroute.hashing import chain
from mmroute.hashing.digests import PageHashes
from mmroute.hashing.extra_keys import check_block_size
from mmroute.hashing.pad_values import PAD_SHIFT, feature_runs
from mmroute.placement import PlaceholderRange
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    import numpy.typing as npt

_SALT_TAG: Final = b"sglang-cache-salt-v1\0"
_WIDE_PAGE: Final = b"\xff"
_WIDE_TAG: Final = b"sglang-mm-wide-pad-v1"
_WIDE_MASK: Final = (1 << 62) - 1
_WORD_BYTES: Final = 8
_WIDEST: Final = 0xFFFFFFFF


def hash_pages(
    padded_ids: npt.NDArray[np.integer], *, page_size: int, cache_salt: str | None = None
) -> PageHashes:
    """The hashes of a prompt's full pages; tokens after the last full page have none.

    >>> [digest[:8] for digest in hash_pages(np.arange(4), page_size=2).hex()]
    ['01acecb5', 'afb62248']
    """
    check_block_size(page_size)
    parent = sha256(_SALT_TAG + cache_salt.encode()).digest() if cache_salt else b""
    count = len(padded_ids) // page_size
    pages = padded_ids[: count * page_size].reshape(count, page_size)
    is_wide = np.any(pages > _WIDEST, axis=1)
    (places,) = is_wide.nonzero()
    # `chain.hash_pages` takes neither wide IDs nor a first page without a parent.
    alone = min(count, max(places[-1] + 1 if len(places) else 0, 0 if parent else 1))
    hashes: list[bytes] = []
    for page, wide in zip(pages[:alone], is_wide.tolist(), strict=False):
        data = _WIDE_PAGE + page.astype("<u8").tobytes() if wide else page.astype("<u4").tobytes()
        parent = sha256(parent + data).digest()
        hashes.append(parent)
    if alone < count:
        rest = np.ascontiguousarray(pages[alone:], np.uint32).reshape(-1)
        hashes += chain.hash_pages(rest, page_size, parent)
    return PageHashes(tuple(hashes), page_size)


def wide_pad_values(image_hash: int) -> tuple[int, ...]:
    """The four numbers that take turns at an image's feature positions in SGLang."""
    digest = sha256(_WIDE_TAG + image_hash.to_bytes(_WORD_BYTES, "big")).digest()
    words = (digest[start : start + _WORD_BYTES] for start in range(0, len(digest), _WORD_BYTES))
    return tuple(PAD_SHIFT + (int.from_bytes(word, "big") & _WIDE_MASK) for word in words)


def wide_pad_value_ids(
    token_ids: TokenIds, ranges: Iterable[tuple[PlaceholderRange, int]]
) -> npt.NDArray[np.int64]:
    """The expanded prompt with `wide_pad_values`, which start again in each run of features."""
    padded = token_ids.astype(np.int64)
    for placeholder, number in ranges:
        values = np.array(wide_pad_values(number))
        for start, stop in feature_runs(placeholder, len(padded)):
            padded[start:stop] = np.resize(values, stop - start)
    return padded
