"""The items of a request: images, videos and audio, each by the numbers that decide its tokens."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from mmroute.errors import InexactError, Reason, invalid, json_type, quoted

_MAX_TEXT: Final = 4096
_MOST_KEPT: Final = 64  # identities of one image
_INT64: Final = 1 << 63
_LARGEST: Final = sys.float_info.max


class Modality(StrEnum):
    """The kind of an item, by the engine's own name."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class ImageSize:
    """An image by its size, on which token IDs depend.

    Attributes:
        width: the width in pixels, after any EXIF rotation that the engine applies.
        height: the height in pixels, after the same rotation.
        uuid: the client's own name for the image; None if it sent none. Token IDs do not depend
            on it; image identities do.

    >>> ImageSize(1280, 720)
    ImageSize(width=1280, height=720, uuid=None)
    """

    modality: ClassVar = Modality.IMAGE
    width: int
    height: int
    uuid: str | None = None

    @property
    def size(self) -> ImageSize:
        """The item itself, which consists of its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image by its file, on which its identity depends; made by `mmroute.read_image`.

    Attributes:
        size: the size as shown, and the client's own name for the image.
        stored: the size in the file's header, before any rotation.
        unturned: the size for an engine that applies no EXIF orientation.
        converted: whether the engine converts the picture to RGB.
        mode: Pillow's name for the mode of the colours.
        data: the bytes of the file.
        identities: the cache of the file's identities, by the settings on which they depend; None
            for no cache.
    """

    modality: ClassVar = Modality.IMAGE
    size: ImageSize
    stored: ImageSize
    unturned: ImageSize
    converted: bool
    mode: str
    data: bytes = field(repr=False)
    identities: dict[object, Identity] | None = field(default=None, repr=False, compare=False)

    def kept(self, place: object, identity: Identity) -> Identity:
        """An identity, which the cache has from now on."""
        if self.identities is not None:
            if len(self.identities) >= _MOST_KEPT:  # a server may replace its models for ever
                self.identities.clear()
            self.identities[place] = identity
        return identity


@dataclass(frozen=True, slots=True)
class VideoSize:
    """A video by the numbers on which token IDs depend.

    Attributes:
        width: the width in pixels, after any rotation that the engine applies.
        height: the height in pixels, likewise.
        num_frames: the number of frames in the file, as the engine's reader counts them.
        fps: the number of frames per second; 0 if it is not known.
        uuid: the client's own name for the video; None if it sent none.
        frame_list: whether the client sent a list of frames (``data:video/jpeg;base64,...``), of
            which the engine uses all.
        unreadable: the number of frames at the end that the engine counts but cannot read.
        lost: the number of a frame before them that the engine cannot read; None if there is none.
    """

    modality: ClassVar = Modality.VIDEO
    width: int
    height: int
    num_frames: int
    fps: float
    uuid: str | None = None
    frame_list: bool = False
    unreadable: int = 0
    lost: int | None = None

    @property
    def size(self) -> VideoSize:
        """The item itself, which consists of its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.num_frames} frames of {self.width}x{self.height} at {self.fps:g} a second"


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A video by its file, on which its identity depends; made by `mmroute.read_video`.

    Attributes:
        size: the numbers of the video, and the client's own name for it.
        data: the bytes of the file, or of the base64 text of a list of frames.
    """

    modality: ClassVar = Modality.VIDEO
    size: VideoSize
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AudioLength:
    """Audio by the numbers on which token IDs depend.

    Attributes:
        num_samples: the number of samples in one channel, as stored.
        sampling_rate: the number of samples per second.
        uuid: the client's own name for the audio; None if it sent none.
        channels: the number of channels, which most models mix into one.
        needs_ffmpeg: whether FFmpeg reads the file, and libsndfile does not.
    """

    modality: ClassVar = Modality.AUDIO
    num_samples: int
    sampling_rate: int
    uuid: str | None = None
    channels: int = 1
    needs_ffmpeg: bool = False

    @property
    def size(self) -> AudioLength:
        """The item itself, which consists of its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.num_samples} samples at {self.sampling_rate} a second"


Image: TypeAlias = ImageSize | ImageFile
"""An image of a request, by its size or its file."""

Video: TypeAlias = VideoSize | VideoFile
"""A video of a request, by its numbers or its file."""

Item: TypeAlias = Image | Video | AudioLength
"""An item of a request, by its numbers or its file."""

Items: TypeAlias = "Mapping[Modality, Sequence[Item]]"
"""The items of a request by modality, each in the order of their parts."""


class IdentityForm(StrEnum):
    """The data from which an engine computes the identity of an item without a uuid."""

    FILE = "file"
    """The item's file, with the conversion settings."""
    UNCONVERTED_FILE = "unconverted_file"
    """The item's file alone, whatever the engine converts it to."""
    FEATURES = "features"
    """The input of the encoder; known only to the worker."""
    VISION_CHUNK = "vision_chunk"
    """The decoded pixels, of images and of pieces of videos; not known without decoding."""


class IdentityFlag(NamedTuple):
    """A flag that an engine hashes with an identity: whether a request has few items."""

    name: str  # the engine's name for it
    most_items: int  # the most items of the modality with which it is true
    number: str = ""  # the number of the grid without which it is never true; empty for none


class IdentitySource(StrEnum):
    """The source of an identity."""

    UUID = "uuid"
    """The client's own name, as it is."""
    UUID_HASH = "uuid_hash"
    """The client's own name, hashed with the processor kwargs and the model string."""
    CONTENT_HASH = "content_hash"
    """The bytes of the file, hashed with the processor kwargs and the model string."""
    REMOTE = "remote"
    """A server's answer, which does not say how the identity was made."""


class Identity(NamedTuple):
    """The string by which an engine tells an item from others.

    Attributes:
        value: the string that block hashes and events have.
        source: the source of the string.
        modality: the engine's modality of the item, if it is not the item's own.
    """

    value: str
    source: IdentitySource
    modality: str | None = None

    def __str__(self) -> str:
        return self.value


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
