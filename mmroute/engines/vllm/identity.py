"""Identities: the strings by which an engine tells items apart.

Source: vLLM ``multimodal/hasher.py`` and ``multimodal/processing/inputs.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from blake3 import blake3

from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.geometry import Overrides
from mmroute.geometry.frame_sampling import Frames
from mmroute.requests.checks import check_text
from mmroute.requests.items import (
    Identity,
    IdentityForm,
    IdentitySource,
    ImageFile,
    ImageSize,
    Item,
    Items,
    Modality,
    VideoFile,
)

_CHUNK: Final = "vision_chunk"  # the engine's modality of images and of pieces of videos
_LENGTH_BYTES: Final = 8
_NONE: Final = b"\x00"
_SEQUENCE: Final = b"\x01"
_MAPPING: Final = b"\x02"
_LEAF: Final = b"\x03"
BACKGROUND: Final = (255, 255, 255)
"""The colour behind a transparent picture."""
# Processor kwargs of other modalities do not enter the identity of an item.
_KWARGS_OF_MODALITIES: Final = frozenset({"images_kwargs", "videos_kwargs", "audio_kwargs"})
_SCOPE: Final = {Modality.IMAGE: "images", Modality.VIDEO: "videos", Modality.AUDIO: "audio"}
_NO_FLAGS: Final[Mapping[str, bool]] = {}
_BYTES_PER_PIXEL: Final = 3  # of a decoded frame
HASHERS: Final[Mapping[str, Callable[[], Any]]] = {
    "blake3": blake3,
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}
"""``--mm-hasher-algorithm`` -> the hash."""


def item_identity(
    item: Item,
    *,
    overrides: Overrides,
    frames: Frames | None,
    model_id: str,
    form: IdentityForm = IdentityForm.FILE,
    flags: Mapping[str, bool] = _NO_FLAGS,
    algorithm: str = "blake3",
) -> Identity | None:
    """See `mmroute.engine.Identify`."""
    uuid, modality = item.size.uuid, item.modality
    if uuid is None and isinstance(item, ImageSize):
        return None
    in_chunk = form is IdentityForm.VISION_CHUNK
    kwargs, media_io = overrides
    if kwargs and not in_chunk:
        others = _KWARGS_OF_MODALITIES - {f"{_SCOPE[modality]}_kwargs"}
        kwargs = {k: v for k, v in kwargs.items() if k not in others}
    if media_io:
        media_io = media_io_of(item, form, overrides)
    if uuid is not None and not kwargs and not media_io:
        named = Identity(uuid, IdentitySource.UUID, _CHUNK if in_chunk else None)
        return _flagged(named, flags, algorithm) if flags else named
    own = media_io.get(modality, {})
    content = _content(item, frames, form, own) if uuid is None else _value(uuid)
    if content is None:
        return None
    factors: dict[str, Iterable[bytes]] = {
        _CHUNK if in_chunk else modality: content,
        "model_id": (_model(model_id),),
    }
    if kwargs:
        factors["mm_processor_kwargs"] = _value(kwargs)
    if media_io:
        factors["media_io_kwargs"] = _value(media_io)
    source = IdentitySource.CONTENT_HASH if uuid is None else IdentitySource.UUID_HASH
    identity = Identity(_hashed(factors, algorithm), source, _CHUNK if in_chunk else None)
    return _flagged(identity, flags, algorithm) if flags else identity


def media_io_of(item: Item, form: IdentityForm, overrides: Overrides) -> Mapping[str, Any]:
    """The ``media_io_kwargs`` that an item's identity covers, by modality."""
    media_io, modality = overrides.media_io, item.modality
    if form is IdentityForm.VISION_CHUNK:
        return media_io
    return {modality.value: media_io[modality]} if media_io.get(modality) else {}


def _flagged(identity: Identity, flags: Mapping[str, bool], algorithm: str) -> Identity:
    """An identity hashed again with what its model covers beside it.

    Source: vLLM ``model_executor/models/deepseek_vl2.py`` (``_get_mm_hashes``).
    """
    factors = {"mm_hash": _value(identity.value)} | {k: _value(v) for k, v in flags.items()}
    named = identity.source is IdentitySource.UUID
    source = IdentitySource.UUID_HASH if named else identity.source
    return identity._replace(value=_hashed(factors, algorithm), source=source)


def _hashed(factors: Mapping[str, Iterable[bytes]], algorithm: str) -> str:
    hasher = HASHERS[algorithm]()
    for name, chunks in sorted(factors.items()):
        hasher.update(_framed(name.encode()))
        for chunk in chunks:
            hasher.update(chunk)
    return str(hasher.hexdigest())


def check_names(
    named: Sequence[tuple[Item, Identity]], items: Items, forms: Mapping[Modality, IdentityForm]
) -> None:
    """Refuse one name for items of two sizes, because the processor cache is keyed by names.

    For a model with vision chunks, also refuse a request in which some images have no uuid.
    """
    for modality, listed in items.items():
        if forms[modality] is not IdentityForm.VISION_CHUNK:
            continue
        if len({item.size.uuid is None for item in listed}) > 1:
            raise invalid(f"the engine wants a uuid for all {modality}s of a request, or for none")
    first_of: dict[str, Item] = {}
    for item, identity in named:
        first = first_of.setdefault(identity.value, item)
        if first is item:
            continue
        one, other = replace(first.size, uuid=None), replace(item.size, uuid=None)
        if one != other:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"the uuid {quoted(identity.value)} names items of two sizes, {one} and {other}; "
                "the engine caches by it, and would reuse the first one's tokens",
            )


def _content(
    item: Item, frames: Frames | None, form: IdentityForm, media_io: Mapping[str, Any]
) -> Iterable[bytes] | None:
    """The bytes of a file that the engine hashes; None if it hashes decoded data."""
    if form is IdentityForm.VISION_CHUNK:
        return None
    if isinstance(item, ImageFile):
        return _image(item, form, media_io)
    if isinstance(item, VideoFile) and frames is not None:
        pixels = len(frames.indices) * item.size.width * item.size.height * _BYTES_PER_PIXEL
        if pixels >= len(item.data) and frames.certain:
            return _video(item, frames)
    return None


def _image(
    image: ImageFile, form: IdentityForm, media_io: Mapping[str, Any]
) -> tuple[bytes, bytes]:
    """A file, with what it was converted to if it was not RGB."""
    start = _IMAGE
    if image.converted and (form is IdentityForm.FILE or "image_mode" in media_io):
        background = media_io.get("rgba_background_color")
        start = _CONVERTED_IMAGE if background is None else _converted_to(background)
    return start + _LEAF + _length(len(image.data)), image.data


def _converted_to(background: Sequence[int]) -> bytes:
    conversion = {"image_mode": "RGB", "rgba_background_color": background}
    framing = (_MAPPING, _length(2), _framed(b"io_config"), *_value(conversion), _framed(b"data"))
    return _IMAGE + b"".join(framing)


def _video(video: VideoFile, frames: Frames) -> Iterator[bytes]:
    """A file, and what the engine says of the frames that it decoded."""
    yield _SEQUENCE + _length(2)
    yield _LEAF + _framed(b"video")
    yield _LEAF + _length(len(video.data))
    yield video.data
    yield from _value(
        {
            "total_num_frames": frames.total,
            "fps": frames.fps,
            "duration": frames.duration,
            "video_backend": frames.backend,
            "frames_indices": list(frames.indices),
            "do_sample_frames": frames.sampled_again,
        }
    )


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
            f"mm_processor_kwargs holds {quoted(value)}, by which no identity is reproducible",
        )
    return array.tobytes()


def _utf8(text: str) -> bytes:
    check_text("mm_processor_kwargs or the model string", text)
    return text.encode()


def _framed(chunk: bytes) -> bytes:
    return _length(len(chunk)) + chunk


def _length(value: int) -> bytes:
    return value.to_bytes(_LENGTH_BYTES, "little")


@lru_cache(maxsize=256)
def _model(model_id: str) -> bytes:
    return b"".join(_value(model_id))


_IMAGE: Final = _LEAF + _framed(b"image")
_CONVERTED_IMAGE: Final = _converted_to(BACKGROUND)
