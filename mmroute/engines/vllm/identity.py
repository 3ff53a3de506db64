"""Image identities: the strings by which an engine tells images apart.

Source: vLLM 0.33.0 ``multimodal/hasher.py`` and ``multimodal/processing/inputs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from blake3 import blake3

from mmroute.errors import InexactError, Reason, shown
from mmroute.request import Image, ImageFile, ImageSize, check_text, size_of

__all__ = ["IdentitySource", "ImageIdentity", "image_identity"]

_LENGTH_BYTES: Final = 8
_NONE: Final = b"\x00"
_SEQUENCE: Final = b"\x01"
_MAPPING: Final = b"\x02"
_LEAF: Final = b"\x03"
# What an image becomes if it is not RGB; transparency on white.
_CONVERSION: Final = {"image_mode": "RGB", "rgba_background_color": (255, 255, 255)}
# Processor kwargs of other modalities do not enter the identity of an image.
_OTHER_MODALITIES: Final = frozenset({"videos_kwargs", "audio_kwargs"})


class IdentitySource(StrEnum):
    """What an identity was made of."""

    UUID = "uuid"
    """The client's own name, as it is."""
    UUID_HASH = "uuid_hash"
    """The client's own name, hashed with the processor kwargs and the model string."""
    CONTENT_HASH = "content_hash"
    """The bytes of the file, hashed with the processor kwargs and the model string."""
    REMOTE = "remote"
    """What a server says of it; of what it was made, it does not say."""


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """How the engine calls an image.

    Attributes:
        value: what enters block hashes and events.
        source: what it was made of.
    """

    value: str
    source: IdentitySource

    def __str__(self) -> str:
        return self.value


def image_identity(
    image: Image, *, mm_processor_kwargs: Mapping[str, Any], model_id: str
) -> ImageIdentity | None:
    """The identity of an image; None if only its size is known.

    Args:
        image: with a uuid, or a file.
        mm_processor_kwargs: of the request.
        model_id: the model string the engine was started with.

    Raises:
        InexactError: `invalid_request` for a text that is not Unicode;
            `unsupported_processor_kwargs` for a number whose hash is not reproducible.
    """
    uuid = size_of(image).uuid
    if uuid is None and isinstance(image, ImageSize):
        return None
    kwargs = {k: v for k, v in mm_processor_kwargs.items() if k not in _OTHER_MODALITIES}
    if uuid is not None and not kwargs:
        return ImageIdentity(uuid, IdentitySource.UUID)
    source = IdentitySource.CONTENT_HASH if uuid is None else IdentitySource.UUID_HASH
    hasher = blake3(_framed(b"image"))
    if uuid is not None:
        hasher.update(_LEAF + _framed(_utf8(uuid)))
    elif isinstance(image, ImageFile):
        hasher.update(_LEAF + _framed(b"image"))
        if image.converted:
            hasher.update(_MAPPING + _length(2) + _framed(b"io_config"))
            hasher.update(b"".join(_value(_CONVERSION)) + _framed(b"data"))
        hasher.update(_LEAF + _length(len(image.data)))
        hasher.update(image.data)
    if kwargs:
        hasher.update(_framed(b"mm_processor_kwargs") + b"".join(_value(kwargs)))
    hasher.update(_framed(b"model_id") + _LEAF + _framed(_utf8(model_id)))
    return ImageIdentity(hasher.hexdigest(), source)


def _value(value: object) -> Iterator[bytes]:
    """A value, tagged by its kind and framed by its length, as the engine feeds its hasher."""
    if value is None:
        yield _NONE
    elif isinstance(value, list | tuple):
        yield _SEQUENCE + _length(len(value))
        for item in value:
            yield from _value(item)
    elif isinstance(value, Mapping):
        yield _MAPPING + _length(len(value))
        for key, item in value.items():
            yield _framed(_utf8(str(key)))
            yield from _value(item)
    elif isinstance(value, str):
        yield _LEAF + _framed(_utf8(value))
    else:
        yield _LEAF + _framed(_number(value))


def _number(value: object) -> bytes:
    array = np.array(value)
    if array.dtype == object:  # an integer of more than 64 bits: the engine hashes its address
        raise InexactError(
            Reason.UNSUPPORTED_PROCESSOR_KWARGS,
            f"mm_processor_kwargs holds {shown(value)}, by which no image identity is reproducible",
        )
    return array.tobytes()


def _utf8(text: str) -> bytes:
    check_text("mm_processor_kwargs or the model string", text)
    return text.encode()


def _framed(chunk: bytes) -> bytes:
    return _length(len(chunk)) + chunk


def _length(value: int) -> bytes:
    return value.to_bytes(_LENGTH_BYTES, "little")
