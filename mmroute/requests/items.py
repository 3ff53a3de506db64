"""The items of a request: images, videos and audio, each by the numbers that decide its tokens."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from mmroute.errors import invalid, quoted

_MAX_TEXT: Final = 4096
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
        width: pixels, upright: after any EXIF rotation that the engine applies.
        height: pixels, likewise.
        uuid: the client's own name for the image, if it sent one. Token IDs do not depend on
            it; image identities do.

    >>> ImageSize(1280, 720)
    ImageSize(width=1280, height=720, uuid=None)
    """

    modality: ClassVar = Modality.IMAGE
    width: int
    height: int
    uuid: str | None = None

    @property
    def size(self) -> ImageSize:
        """Itself: no more is known of this item than its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image by its file, on which its identity depends; made by `mmroute.read_image`.

    Attributes:
        size: as it is shown, and the client's own name for it.
        stored: as the file's header has it, before any rotation.
        unturned: as an engine decodes it that applies no EXIF orientation.
        converted: whether the engine has to convert the picture to RGB.
        mode: of its colours, as Pillow calls it.
        data: the whole file.
        identities: of the file, by what else they depend on, where the file may come again; None
            where none are kept.
    """

    modality: ClassVar = Modality.IMAGE
    size: ImageSize
    stored: ImageSize
    unturned: ImageSize
    converted: bool
    mode: str
    data: bytes = field(repr=False)
    identities: dict[object, Identity] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class VideoSize:
    """A video by the numbers on which token IDs depend.

    Attributes:
        width: pixels, after any rotation that the engine applies.
        height: pixels, likewise.
        num_frames: frames in the file, as the engine's reader counts them.
        fps: frames a second; 0 if it is not known.
        uuid: the client's own name for the video, if it sent one.
        frame_list: whether the client sent single frames (``data:video/jpeg;base64,...``), all
            of which the engine takes.
    """

    modality: ClassVar = Modality.VIDEO
    width: int
    height: int
    num_frames: int
    fps: float
    uuid: str | None = None
    frame_list: bool = False

    @property
    def size(self) -> VideoSize:
        """Itself: no more is known of this item than its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.num_frames} frames of {self.width}x{self.height} at {self.fps:g} a second"


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A video by its file, on which its identity depends; made by `mmroute.read_video`.

    Attributes:
        size: its numbers, and the client's own name for it.
        data: the whole file; of a list of frames the base64 text of all of them.
    """

    modality: ClassVar = Modality.VIDEO
    size: VideoSize
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AudioLength:
    """A piece of audio by the numbers on which token IDs depend.

    Attributes:
        num_samples: samples of one channel, as they are stored.
        sampling_rate: samples a second.
        uuid: the client's own name for the audio, if it sent one.
        channels: how many there are; most models make one of them.
    """

    modality: ClassVar = Modality.AUDIO
    num_samples: int
    sampling_rate: int
    uuid: str | None = None
    channels: int = 1

    @property
    def size(self) -> AudioLength:
        """Itself: no more is known of this item than its numbers."""
        return self

    def __str__(self) -> str:
        return f"{self.num_samples} samples at {self.sampling_rate} a second"


Image: TypeAlias = ImageSize | ImageFile
"""An image of a request, as far as it is known."""

Video: TypeAlias = VideoSize | VideoFile
"""A video of a request, as far as it is known."""

Item: TypeAlias = Image | Video | AudioLength
"""An item of a request, as far as it is known."""

Items: TypeAlias = "Mapping[Modality, Sequence[Item]]"
"""The items of a request by modality, each in the order of their parts."""


class IdentityForm(StrEnum):
    """What an engine hashes of an item that has no name."""

    FILE = "file"
    """Its file, with what it is converted to."""
    UNCONVERTED_FILE = "unconverted_file"
    """Its file alone: the engine converts nothing for the model."""
    FEATURES = "features"
    """What its encoder gets, whatever name the client has for it: known to the worker alone."""
    VISION_CHUNK = "vision_chunk"
    """Its decoded pixels, as one of images and pieces of videos: not to be had from the file."""


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


class Identity(NamedTuple):
    """The string by which an engine tells an item from others.

    Attributes:
        value: what enters block hashes and events.
        source: what it was made of.
    """

    value: str
    source: IdentitySource

    def __str__(self) -> str:
        return self.value


def image_size(width: object, height: object, uuid: object = None) -> ImageSize:
    """Check what a client says of an image.

    Raises:
        InexactError: `invalid_request` for anything but two positive integers and a text.
    """
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
    """Check what a client says of a video.

    Raises:
        InexactError: `invalid_request` for anything but three positive integers, a number, a text
            and a boolean.
    """
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
    """Check what a client says of audio.

    Raises:
        InexactError: `invalid_request` for anything but three positive integers and a text.
    """
    num_samples = _length("audio num_samples", num_samples)
    sampling_rate = _length("audio sampling_rate", sampling_rate)
    channels = _length("audio channels", channels)
    return AudioLength(num_samples, sampling_rate, checked_uuid(uuid), channels)


def _length(name: str, value: object, unit: str = "") -> int:
    if type(value) is int and 0 < value < _INT64:
        return value
    raise invalid(f"{name} must be a positive int{unit}, found {quoted(value)}")


def checked_uuid(uuid: object) -> str | None:
    """Check the name a client gives an item.

    Raises:
        InexactError: `invalid_request` for anything but a text that can be hashed.
    """
    if uuid is None:
        return None
    if not isinstance(uuid, str):
        raise invalid(f"uuid must be a string, found {quoted(uuid)}")
    check_text("uuid", uuid)
    return uuid


def check_text(name: str, text: str) -> None:
    """Refuse a text that block hashes cannot cover, or that would be costly in all of them.

    Raises:
        InexactError: `invalid_request` for half of a surrogate pair, which JSON may hold, or
            for more than 4,096 characters.
    """
    if len(text) > _MAX_TEXT:
        raise invalid(f"{name} must have at most {_MAX_TEXT} characters, found {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{name} holds a lone surrogate: {error.reason}") from error


def check_items(name: str, items: object, kinds: tuple[type[Item], ...]) -> None:
    """Check the items given beside a prompt or messages.

    Args:
        name: the field of the request.
        items: its value.
        kinds: the classes of the items that belong there.

    Raises:
        InexactError: `invalid_request` for anything but a sequence of such items.
    """
    if type(items) is not list and not isinstance(items, Sequence):
        raise invalid(f"{name} must be a sequence of {_names(kinds)}, found {type(items).__name__}")
    for index, item in enumerate(items):
        if type(item) is ImageSize is kinds[0]:  # the commonest item, at the least cost
            width, height = item.width, item.height
            if type(width) is type(height) is int and 0 < width < _INT64 and 0 < height < _INT64:
                if item.uuid is not None:
                    checked_uuid(item.uuid)
                continue
        if not isinstance(item, kinds):
            raise invalid(f"{name}[{index}] must be {_names(kinds)}, found {quoted(item)}")
        _check_numbers(item.size)


def _names(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _check_numbers(size: ImageSize | VideoSize | AudioLength) -> None:
    match size:
        case ImageSize():
            image_size(size.width, size.height, size.uuid)
        case VideoSize():
            numbers = size.width, size.height, size.num_frames, size.fps
            video_size(*numbers, size.uuid, frame_list=size.frame_list)
        case AudioLength():
            audio_length(size.num_samples, size.sampling_rate, size.uuid, size.channels)
