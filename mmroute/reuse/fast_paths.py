"""Settings and counters of encoders and caches, which make requests fast and change no answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mmroute.errors import did_you_mean, quoted

_MEBIBYTE: Final = 1 << 20
_BYTES: Final = ("text_cache_bytes", "hash_cache_bytes", "chat_cache_bytes", "image_cache_bytes")


class EncoderChoice(StrEnum):
    """The choice of the encoder of text. `tokenizers` is the reference, and is always loaded."""

    AUTO = "auto"
    """fastokens, if it is installed and gives the reference's IDs for this model's probe texts."""
    FASTOKENS = "fastokens"
    """fastokens; if it cannot be used, the model is not loaded."""
    TOKENIZERS = "tokenizers"
    """The reference, always."""


@dataclass(frozen=True, slots=True)
class FastPaths:
    """The encoder and the caches of a model. Every setting gives the same answers.

    Attributes:
        encoder: the choice of the encoder, a value of `EncoderChoice`.
        text_cache_bytes: the size of the cache of encoded prompts, by which only a conversation's
            new turn is encoded; 0 for no cache.
        hash_cache_bytes: the size of the cache of block hashes, by which only the blocks of the new
            turn are hashed; 0 for no cache.
        chat_cache_bytes: the size of the cache of rendered chats, by which only a conversation's
            new messages are checked and rendered; 0 for no cache.
        image_cache_bytes: the size of the cache of images in data URLs, by which an image that
            comes again is neither decoded nor hashed; 0 for no cache.
        at_once: whether the encoder is chosen while the model is loaded, and not when much text
            came. It is for a process that waits for the choice (`Normalizer.stats`) before it
            answers.

    Raises:
        ValueError: a value is none of these.
    """

    encoder: str = EncoderChoice.AUTO
    text_cache_bytes: int = 64 * _MEBIBYTE
    hash_cache_bytes: int = 64 * _MEBIBYTE
    chat_cache_bytes: int = 64 * _MEBIBYTE
    image_cache_bytes: int = 64 * _MEBIBYTE
    at_once: bool = False

    def __post_init__(self) -> None:
        known = [choice.value for choice in EncoderChoice]
        if self.encoder not in known:
            hint = did_you_mean(str(self.encoder), known)
            raise ValueError(
                f"encoder must be one of {', '.join(known)}; found {quoted(self.encoder)}{hint}"
            )
        for name in _BYTES:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} must be a number of bytes or 0, found {quoted(value)}")


REFERENCE_ONLY: Final = FastPaths(EncoderChoice.TOKENIZERS, 0, 0, 0, 0)
"""For a model that encodes only a few texts, as choosing a faster encoder takes seconds."""


class CacheStats(NamedTuple):
    """The counters of a prefix cache, or of the cache of images."""

    hits: int = 0  # the number of lookups that found a prefix, or an image
    misses: int = 0  # the number of other lookups of values that are long enough to be cached
    # The amount that all hits together did not have to compute: characters of text, or bytes of
    # token IDs, messages or base64.
    reused: int = 0
    entries: int = 0  # the number of entries in the cache now
    kept_bytes: int = 0  # the memory that the entries take, in bytes


class EncoderStats(NamedTuple):
    """The library that encodes text, and the cache of encoded texts."""

    engine: str  # the name and version of the library
    why: str  # the reason for the choice, in words
    reuse: CacheStats | None = None  # the counters of the cache; None if there is no cache


class Stats(NamedTuple):
    """Counters of a normalizer, since it was loaded."""

    # The encoder of text; None if the model's own chat encoder encodes all texts.
    encoder: EncoderStats | None
    # The counters of the cache of block hashes; None if there is no cache.
    hashes: CacheStats | None
    # The counters of the cache of rendered chats; None if there is no cache.
    chats: CacheStats | None = None
    # The counters of the cache of images; None if there is no cache.
    images: CacheStats | None = None
