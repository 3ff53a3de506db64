"""The hashes SGLang gives to the full pages of a prompt, and publishes in KV events.

Source: SGLang ``srt/mem_cache/utils.py`` (`compute_node_event_hash_values`,
`hash_str_to_int64`), ``radix_cache.py``. It holds for requests without a LoRA adapter and without
``extra_key``.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np

from mmroute.hashing import chain
from mmroute.hashing.digests import Digests
from mmroute.hashing.extra_keys import check_block_size

if TYPE_CHECKING:
    import numpy.typing as npt

_SALT_TAG: Final = b"sglang-cache-salt-v1\0"
_WIDE_TAG: Final = b"\xff"
_EVENT_BYTES: Final = 8
_WIDEST: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, repr=False)
class PageHashes(Digests):
    """The hashes of a prompt's full pages, in their order. Immutable.

    Attributes:
        hashes: one for each page, 32 bytes.
        page_size: the number of tokens in a page.
    """

    page_size: int

    def event_ints(self) -> list[int]:
        """The hashes as events carry them: the first 64 bits, signed."""
        return [int.from_bytes(d[:_EVENT_BYTES], "big", signed=True) for d in self.hashes]


def hash_pages(
    padded_ids: npt.NDArray[np.integer], *, page_size: int, cache_salt: str | None = None
) -> PageHashes:
    """The hashes of a prompt's full pages; tokens after the last full page have none.

    Args:
        padded_ids: the expanded prompt with pad values, shape (n,), any type of integers; see
            `mmroute.hashing.wide_pad_value_ids`.
        page_size: the server's ``--page-size``.
        cache_salt: the request's cache salt; an empty one is none.

    Raises:
        ValueError: `page_size` is below 1.

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
        data = _WIDE_TAG + page.astype("<u8").tobytes() if wide else page.astype("<u4").tobytes()
        parent = sha256(parent + data).digest()
        hashes.append(parent)
    if alone < count:
        rest = np.ascontiguousarray(pages[alone:], np.uint32).reshape(-1)
        hashes += chain.hash_pages(rest, page_size, parent)
    return PageHashes(tuple(hashes), page_size)
