"""The hashes of SGLang, which cover pages of token IDs with pad values.

Source: SGLang ``srt/mem_cache/utils.py`` (`compute_node_event_hash_values`, `hash_str_to_int64`),
``radix_cache.py``, ``events.py``, ``srt/disaggregation/kv_events.py`` (`namespaced_block_hash`),
``srt/lora/lora_registry.py`` (`deterministic_id`), ``srt/managers/schedule_batch.py``. They hold
for requests without ``extra_key``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from mmroute.errors import InexactError, Reason, quoted
from mmroute.hashing import ImageHash, PageHashes, chain
from mmroute.hashing.extra_keys import check_block_size
from mmroute.hashing.hashes import HashedPrompt, HashSettings
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
_NAMESPACE_TAG: Final = b"sglang-kv-event-namespace-v1"


def hash_pages(
    padded_ids: npt.NDArray[Any], *, page_size: int, cache_salt: str | None = None
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


def namespace_seed(adapter: str | None, cache_salt: str | None) -> bytes:
    """What numbers of events cover beside pages; empty for nothing."""
    if adapter is None and cache_salt is None:
        return b""
    parts = [b"\0" if part is None else _framed(part.encode()) for part in (adapter, cache_salt)]
    return sha256(_NAMESPACE_TAG + b"".join(parts)).digest()


def namespaced(hashes: tuple[bytes, ...], seed: bytes) -> tuple[bytes, ...]:
    """The hashes whose numbers events have; those of pages where the seed is empty."""
    return tuple(sha256(seed + page[:_WORD_BYTES]).digest() for page in hashes) if seed else hashes


def _framed(text: bytes) -> bytes:
    return b"\1" + len(text).to_bytes(_WORD_BYTES, "little") + text


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


_DEFAULTS: Final = HashSettings()


@dataclass(frozen=True, slots=True)
class SglangHashes:
    """See `mmroute.hashing.hashes.Hashes`."""

    settings: HashSettings = _DEFAULTS  # the values on which the hashes depend beside the request
    bigrams: bool = False  # whether pages are of pairs of tokens, each with the one after it
    dynamo: bool = False  # whether events are in Dynamo's format, whose numbers cover salts again
    # The path of each adapter of the command line, by its name.
    loras: Mapping[str, str] = field(default_factory=dict, hash=False)
    # The expanded prompt with pad values, by the number of each item.
    pads: Callable[[TokenIds, Iterable[tuple[PlaceholderRange, int]]], npt.NDArray[Any]] = (
        wide_pad_value_ids
    )
    shows_adapters: bool = True  # whether the numbers of events cover adapters

    of_kind: ClassVar = PageHashes

    def extra_keys(self, *_prompt: object) -> NoReturn:
        """See `Hashes`."""
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING, "SGLang's hashes of pages have no extra keys"
        )

    def content_keys(self, prompt: HashedPrompt, block_size: int | None) -> tuple[int, ...]:
        """See `Hashes`. The salt is a key of the first page, as it is vLLM's."""
        from mmroute.engines.events import NO_KEYS, Contents  # msgspec
        from mmroute.hashing.content import encode

        size, padded = self._size(block_size), self.event_token_ids(prompt)
        lora_name = None if prompt.lora is None else prompt.lora.name
        count = (len(padded) - self.bigrams) // size
        keys = [NO_KEYS] * count
        if prompt.cache_salt and count:
            keys[0] = encode((prompt.cache_salt,))
        ends = padded[size : count * size + 1 : size, None] if self.bigrams else ()
        ahead = [encode(end.tolist()) for end in ends]
        return Contents.of(padded[: count * size], keys, lora_name, ahead).keys(size)

    def of(self, prompt: HashedPrompt, *, block_size: int | None, **_how: object) -> PageHashes:
        size, adapter = self._size(block_size), self._adapter(prompt)
        padded, salt = self.event_token_ids(prompt), prompt.cache_salt
        if self.bigrams:
            pairs = np.repeat(padded, 2)[1:-1]  # a, b, b, c, c, d: each with the one after it
            pages = hash_pages(pairs, page_size=2 * size, cache_salt=salt)
        else:
            pages = hash_pages(padded, page_size=size, cache_salt=salt)
        namespace = namespace_seed(adapter, (salt or None) if self.dynamo else None)
        return PageHashes(namespaced(pages.hashes, namespace), size)

    def event_token_ids(self, prompt: HashedPrompt) -> npt.NDArray[Any]:
        """The expanded prompt as events have it: with numbers in the place of features."""
        ids = prompt.token_ids
        if None in prompt.identities:
            raise InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                "SGLang hashes the decoded pictures of this model unless /generate gets mm_hashes: "
                "give an entry for each image, and send the same. Its chat route ignores them, and "
                "the uuid of a part. For models whose pictures it names by their files (Qwen3-VL; "
                "others with --mm-preprocess-cache-size-mb) give the file of each image, such as a "
                "data URL",
            )
        return self.pads(ids, prompt.placed_hashes()) if prompt.identities else ids

    def _size(self, block_size: int | None) -> int:
        size = self.settings.block_size if block_size is None else block_size
        if size is None:
            raise InexactError(
                Reason.BLOCK_SIZE_UNKNOWN,
                "the engine chooses the size of its pages by its attention backend; give the "
                "worker's (its --page-size, or block_size of its BlockStored events)",
            )
        check_block_size(size)
        return size

    def _adapter(self, prompt: HashedPrompt) -> str | None:
        """The name by which the cache knows an adapter of the command line; None for none."""
        if prompt.lora is None:
            return None
        name = prompt.lora.name
        if not self.shows_adapters:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                "lora: before SGLang 0.5.23 events do not tell the pages of an adapter from others",
            )
        if name not in self.loras:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"lora: {quoted(name)} is no adapter of --lora-paths; SGLang names one that is "
                "loaded later by a number drawn at random, which its page hashes cover",
            )
        return uuid5(NAMESPACE_URL, f"{name}\0{self.loras[name]}").hex

    def item_hash(self, identity: str) -> ImageHash:
        """See `Hashes`: identities are hexadecimal numbers."""
        return ImageHash(int(identity, 16))
