"""What makes a request fast and leaves its answer as it is: settings, and counters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mmroute.errors import did_you_mean, quoted

_MEBIBYTE: Final = 1 << 20
_BYTES: Final = ("text_cache_bytes", "hash_cache_bytes", "chat_cache_bytes", "image_cache_bytes")


class EncoderChoice(StrEnum):
    """Who encodes text. `tokenizers` is the reference, and always loaded."""

    AUTO = "auto"
    """fastokens, where it is installed and gives this model's probe texts the reference's IDs."""
    FASTOKENS = "fastokens"
    """fastokens, or no model at all."""
    TOKENIZERS = "tokenizers"
    """The reference."""


@dataclass(frozen=True, slots=True)
class FastPaths:
    """How a model may be made fast. Every setting gives the same answers.

    Attributes:
        encoder: who encodes text: a value of `EncoderChoice`.
        text_cache_bytes: memory for the beginnings of prompts and their token IDs, so that only
            a conversation's new turn is encoded; 0 for none.
        hash_cache_bytes: the same for block hashes.
        chat_cache_bytes: the same for the messages of chats and their texts, so that only a
            conversation's new messages are checked and rendered.
        image_cache_bytes: memory for images that come again as data URLs, which are then neither
            decoded nor hashed; 0 for none.

    Raises:
        ValueError: a value is not one of these.
    """

    encoder: str = EncoderChoice.AUTO
    text_cache_bytes: int = 64 * _MEBIBYTE
    hash_cache_bytes: int = 64 * _MEBIBYTE
    chat_cache_bytes: int = 64 * _MEBIBYTE
    image_cache_bytes: int = 64 * _MEBIBYTE

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


REFERENCE_ONLY: Final = FastPaths(EncoderChoice.TOKENIZERS, **dict.fromkeys(_BYTES, 0))
"""For a model that answers a few texts: the choice of a faster encoder takes seconds."""


class ReuseStats(NamedTuple):
    """What a cache of beginnings has done, or one of images.

    Attributes:
        hits: lookups that found a known beginning, or image.
        misses: those that did not, of what is long enough to be kept.
        reused: characters, or bytes of token IDs, of messages or of base64, that all hits together
            had not to compute.
        entries: how many the cache holds now.
        kept_bytes: the memory that these take.
    """

    hits: int = 0
    misses: int = 0
    reused: int = 0
    entries: int = 0
    kept_bytes: int = 0


class EncoderStats(NamedTuple):
    """The library that encodes text, and the cache of encoded texts.

    Attributes:
        engine: name and version of the library.
        why: how it was chosen, in words.
        reuse: counters of the cache; None if texts are not kept.
    """

    engine: str
    why: str
    reuse: ReuseStats | None = None


class Stats(NamedTuple):
    """Counters of a normalizer, since it was loaded.

    Attributes:
        encoder: the encoder of text; None where a model's own chat encoder does all.
        hashes: counters of the cache of block hashes; None if they are not kept.
        chats: counters of the cache of rendered chats; None if they are not kept.
        images: counters of the cache of images; None if they are not kept.
    """

    encoder: EncoderStats | None
    hashes: ReuseStats | None
    chats: ReuseStats | None = None
    images: ReuseStats | None = None
