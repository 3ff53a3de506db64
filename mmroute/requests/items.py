"""The items of a request: images, videos and audio, each by the numbers that decide its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

_MOST_KEPT: Final = 64  # identities of one image


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
