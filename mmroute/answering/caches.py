"""The caches of a normalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mmroute.hashing.cache import HashCache
from mmroute.images.known_files import KnownFiles
from mmroute.reuse.fast_paths import FastPaths

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatCache


class Caches(NamedTuple):
    """The caches of a normalizer; None for a cache that is switched off."""

    hashes: HashCache | None = None  # the cache of block hashes
    chats: ChatCache | None = None  # the cache of rendered chats, all of one model
    images: KnownFiles | None = None  # the cache of images in data URLs

    @classmethod
    def of(cls, options: FastPaths) -> Caches:
        """Empty caches of the sizes in the options."""
        from mmroute.chat.cache import ChatCache  # jinja2

        return cls(
            HashCache(options.hash_cache_bytes) if options.hash_cache_bytes else None,
            ChatCache(options.chat_cache_bytes) if options.chat_cache_bytes else None,
            KnownFiles(options.image_cache_bytes) if options.image_cache_bytes else None,
        )


NO_CACHES: Final = Caches()
"""All caches are switched off."""
