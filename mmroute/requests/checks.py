"""Checks what a client sent: the fields of a request, and the numbers of its items."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, SupportsIndex

from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.items import (
    AudioLength,
    ImageFile,
    ImageSize,
    Item,
    Modality,
    VideoFile,
    VideoSize,
)
from mmroute.requests.request import KWARGS, NO_ITEMS, Lora, Request

_MAX_TEXT: Final = 4096
_INT64: Final = 1 << 63
_LARGEST: Final = sys.float_info.max
_MAX_CACHE_SALT: Final = 128
_NOT_IN_CACHE_SALT: Final = frozenset("@/\\\0")
_MODALITIES: Final = frozenset(Modality)
_FLAGS: Final = (
    "add_special_tokens", "add_generation_prompt", "continue_final_message", "reads_cache",
)  # fmt: skip
_FIRST_OPTION: Final = Request._fields.index("add_special_tokens")
_JSON_FIELDS: Final = tuple(
    name
    for name in Request._fields
    if name not in ("prompt_token_ids", "images", "videos", "audios", "lora")
)
_DEFAULT_OPTIONS: Final = tuple(Request._field_defaults.values())[_FIRST_OPTION:]


def check_request(request: Request) -> None:
    """Check all fields except those that are checked later, while they are read.

    These are `messages`, `tools`, `reasoning_effort`, `documents`, `prompt` and
    `prompt_token_ids`.
    """
    chat, text, ids = request.messages, request.prompt, request.prompt_token_ids
    num_forms = (chat is not None) + (text is not None) + (ids is not None)
    if num_forms != 1:
        raise invalid(
            f"give exactly one of messages, prompt and prompt_token_ids, found {num_forms} of them"
        )
    if request.images is not NO_ITEMS:
        check_items("images", request.images, (ImageSize, ImageFile))
    if request.videos is not NO_ITEMS:
        check_items("videos", request.videos, (VideoSize, VideoFile))
    if request.audios is not NO_ITEMS:
        check_items("audios", request.audios, (AudioLength,))
    if not all(map(operator.is_, request[_FIRST_OPTION:], _DEFAULT_OPTIONS)):
        _check_options(request)


def _check_options(request: Request) -> None:
    for name in _FLAGS:
        if not isinstance(flag := getattr(request, name), bool):
            raise invalid(f"{name} must be true or false, found {quoted(flag)}")
    for name in KWARGS:
        if (kwargs := getattr(request, name)) or type(kwargs) is not dict:
            _check_object(name, kwargs)
    kept = request.truncate_prompt_tokens
    if kept is not None and (type(kept) is not int or kept < -1):
        raise invalid(f"truncate_prompt_tokens must be -1 or more, found {quoted(kept)}")
    if request.media_io_kwargs or request.mm_hashes is not NO_ITEMS or request.lora is not None:
        _check_media_io(request.media_io_kwargs)
        _check_mm_hashes(request.mm_hashes)
        _check_lora(request.lora)


def check_json(request: Request) -> None:
    """Refuse a field that has a value which is not JSON, such as a numpy array.

    It is called only after reading the request raised an error, because it takes as long as
    writing the request.
    """
    for name in _JSON_FIELDS:
        try:
            json.dumps(getattr(request, name))
        except (TypeError, ValueError, RecursionError) as error:
            raise invalid(f"{name} cannot be written as JSON: {error}") from error


def image_size(width: object, height: object, uuid: object = None) -> ImageSize:
    """Check a client's numbers of an image."""
    width = _length("image width", width, " of pixels")
    height = _length("image height", height, " of pixels")
    return ImageSize(width, height, checked_uuid(uuid))


def video_size(
    width: object,
    height: object,
    num_frames: object,
    fps: object,
    uuid: object = None,
    *,
    frame_list: object = False,
) -> VideoSize:
    """Check a client's numbers of a video."""
    width, height = _length("video width", width), _length("video height", height)
    num_frames = _length("video num_frames", num_frames)
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 <= fps <= _LARGEST:
        raise invalid(f"video fps must be a number of frames a second, found {quoted(fps)}")
    if not isinstance(frame_list, bool):
        raise invalid(f"video frame_list must be true or false, found {quoted(frame_list)}")
    return VideoSize(width, height, num_frames, float(fps), checked_uuid(uuid), frame_list)


def audio_length(
    num_samples: object, sampling_rate: object, uuid: object = None, channels: object = 1
) -> AudioLength:
    """Check a client's numbers of audio."""
    num_samples = _length("audio num_samples", num_samples)
    sampling_rate = _length("audio sampling_rate", sampling_rate)
    channels = _length("audio channels", channels)
    return AudioLength(num_samples, sampling_rate, checked_uuid(uuid), channels)


def _check_missing_frames(video: VideoSize) -> None:
    for name, number in (
        ("unreadable", video.unreadable),
        ("lost", 0 if video.lost is None else video.lost),
    ):
        if type(number) is not int or not 0 <= number < _INT64:
            raise invalid(f"video {name} must be an int of 0 or more, found {quoted(number)}")


def _length(name: str, value: object, unit: str = "") -> int:
    if type(value) is int and 0 < value < _INT64:
        return value
    raise invalid(f"{name} must be a positive int{unit}, found {quoted(value)}")


def checked_uuid(uuid: object) -> str | None:
    """Check a client's own name for an item."""
    if uuid is None:
        return None
    if not isinstance(uuid, str):
        raise invalid(f"uuid must be a string, found {quoted(uuid)}")
    check_text("uuid", uuid)
    return uuid


def check_text(name: str, text: str) -> None:
    """Refuse a text that cannot be hashed, or that is too long to be hashed fast."""
    if len(text) > _MAX_TEXT:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{name} must have at most {_MAX_TEXT} characters, found {len(text)}",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{name} holds a lone surrogate: {error.reason}") from error


def check_items(name: str, items: object, kinds: tuple[type[Item], ...]) -> None:
    """Check the items of a request that are not in its messages."""
    if type(items) is not list and not isinstance(items, Sequence):
        raise invalid(f"{name} must be a sequence of {_names(kinds)}, found {json_type(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, kinds):
            raise invalid(f"{name}[{index}] must be {_names(kinds)}, found {quoted(item)}")
        if type(item) is ImageSize and _has_valid_sides(item):  # most items; it saves a copy
            checked_uuid(item.uuid)
        else:
            _check_numbers(item.size)


def _has_valid_sides(size: ImageSize) -> bool:
    width, height = size.width, size.height
    return type(width) is int and type(height) is int and 0 < width < _INT64 and 0 < height < _INT64


def _names(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _check_numbers(size: ImageSize | VideoSize | AudioLength) -> None:
    match size:
        case ImageSize():
            image_size(size.width, size.height, size.uuid)
        case VideoSize():
            numbers = size.width, size.height, size.num_frames, size.fps
            video_size(*numbers, size.uuid, frame_list=size.frame_list)
            _check_missing_frames(size)
        case AudioLength():
            audio_length(size.num_samples, size.sampling_rate, size.uuid, size.channels)


def integers(name: str, values: object) -> list[int]:
    """The list of ints of any iterable of integers, such as a numpy array."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise invalid(f"{name} must be a list of integers, found {json_type(values)}")
    try:
        listed = list(values)
        if set(map(type, listed)) <= {int}:
            return listed
        for index, value in enumerate(listed):
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise invalid(f"{name}[{index}] must be an integer, found {quoted(value)}")
        return list(map(operator.index, listed))
    except TypeError as error:  # an array of zero or two dimensions
        raise invalid(f"{name} must be one flat list of integers: {error}") from error


def _check_object(name: str, kwargs: object) -> None:
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise invalid(f"{name} must be an object, found {quoted(kwargs)}")


def _check_mm_hashes(entries: object) -> None:
    if not isinstance(entries, list | tuple):
        raise invalid(f"mm_hashes must be a list, found {quoted(entries)}")


def _check_media_io(kwargs_by_modality: Mapping[str, object]) -> None:
    for name, kwargs in kwargs_by_modality.items():
        if name not in _MODALITIES or not isinstance(kwargs, Mapping):
            raise invalid(
                f"media_io_kwargs must have objects by modality ({', '.join(Modality)}), found "
                f"{quoted(name)}: {quoted(kwargs)}"
            )


def check_cache_salt(salt: object) -> None:
    """Check a cache salt."""
    if salt is None:
        return
    if not isinstance(salt, str) or not 1 <= len(salt) <= _MAX_CACHE_SALT:
        raise invalid(
            f"cache_salt must be a text of 1 to {_MAX_CACHE_SALT} characters, found {quoted(salt)}"
        )
    if not _NOT_IN_CACHE_SALT.isdisjoint(salt):
        raise invalid(f"cache_salt must not contain @, /, \\ or NUL, found {quoted(salt)}")
    check_text("cache_salt", salt)


def _check_lora(lora: object) -> None:
    if lora is None:
        return
    if not isinstance(lora, Lora):
        raise invalid(f"lora must be a Lora, found {quoted(lora)}")
    for name, value in (("name", lora.name), ("path", lora.path)):
        if not isinstance(value, str) or not value:
            raise invalid(f"lora.{name} must be a text that is not empty, found {quoted(value)}")
        check_text(f"lora.{name}", value)
