"""Image identities: the strings by which an engine tells images apart.

Source: vLLM 0.33.0 ``multimodal/hasher.py`` and ``multimodal/processing/inputs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from blake3 import blake3

from mmroute.errors import InexactError, Reason, shown
from mmroute.items import (
    Identity,
    IdentityForm,
    IdentitySource,
    ImageFile,
    Item,
    check_text,
    size_of,
)

__all__ = ["image_identity"]

_LENGTH_BYTES: Final = 8
_NONE: Final = b"\x00"
_SEQUENCE: Final = b"\x01"
_MAPPING: Final = b"\x02"
_LEAF: Final = b"\x03"
# What an image becomes if it is not RGB; transparency on white.
_CONVERSION: Final = {"image_mode": "RGB", "rgba_background_color": (255, 255, 255)}
# Processor kwargs of other modalities do not enter the identity of an image.
_OTHER_MODALITIES: Final = frozenset({"videos_kwargs", "audio_kwargs"})


def image_identity(
    item: Item,
    *,
    mm_processor_kwargs: Mapping[str, Any],
    model_id: str,
    form: IdentityForm = IdentityForm.FILE,
) -> Identity | None:
    """The identity of an image; None if too little is known of it.

    Args:
        item: an image with a uuid, or its file.
        mm_processor_kwargs: of the request.
        model_id: the model string the engine was started with.
        form: what the engine hashes for this model.

    Raises:
        InexactError: `invalid_request` for a text that is not Unicode;
            `unsupported_processor_kwargs` for a number whose hash is not reproducible.
    """
    uuid = size_of(item).uuid
    in_chunk = form is IdentityForm.VISION_CHUNK
    if uuid is None and (in_chunk or not isinstance(item, ImageFile)):
        return None
    kwargs = {
        k: v for k, v in mm_processor_kwargs.items() if in_chunk or k not in _OTHER_MODALITIES
    }
    if uuid is not None and not kwargs:
        return Identity(uuid, IdentitySource.UUID)
    source = IdentitySource.CONTENT_HASH if uuid is None else IdentitySource.UUID_HASH
    factors = {
        "vision_chunk" if in_chunk else "image": _image(item, form)
        if uuid is None
        else _value(uuid),
        "model_id": _value(model_id),
    }
    if kwargs:
        factors["mm_processor_kwargs"] = _value(kwargs)
    hasher = blake3()
    for name in sorted(factors):
        hasher.update(_framed(name.encode()))
        for chunk in factors[name]:
            hasher.update(chunk)
    return Identity(hasher.hexdigest(), source)


def _image(item: Item, form: IdentityForm) -> Iterator[bytes]:
    """A file, with what it was converted to if it was not RGB."""
    if not isinstance(item, ImageFile):
        return
    yield _LEAF + _framed(b"image")
    if item.converted and form is IdentityForm.FILE:
        yield _MAPPING + _length(2) + _framed(b"io_config")
        yield from _value(_CONVERSION)
        yield _framed(b"data")
    yield _LEAF + _length(len(item.data))
    yield item.data


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
