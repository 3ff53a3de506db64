"""The protocol of grids, which count the tokens of an item and know no token ID."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from mmroute.errors import InexactError, Reason
from mmroute.geometry.frame_sampling import DEFAULT, Frames, Sampler, Sampling, sample
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import AudioLength, ImageSize, VideoSize

_Size = TypeVar("_Size", ImageSize, VideoSize, AudioLength)
_Size_contra = TypeVar("_Size_contra", contravariant=True)


class Count(NamedTuple):
    """The number of feature positions of an item, and their division."""

    # The number of rows of tiles; 0 for an item that is not cut. A frame of a video is a row.
    rows: int = 0
    columns: int = 0  # the number of tiles in a row
    tile: int = 1  # the number of feature positions of each tile
    # The number of feature positions of the whole item, beside its tiles or without any.
    whole: int = 0
    # The time of each row of a video in seconds; empty if they are not known.
    times: tuple[float, ...] = ()

    @property
    def total(self) -> int:
        """The number of all feature positions."""
        return self.rows * self.columns * self.tile + self.whole


class CachePlan(NamedTuple):
    """The values by which the engine plans its encoder cache, beside a model's own."""

    max_model_len: int
    largest_image: int = 0  # its features; 0 without images
    takes_images: bool = True  # whether a request may have an image
    encode: Callable[[str], Any] = str.encode

    @property
    def beside_an_image(self) -> int:
        """The number of tokens of the context that the largest image leaves; may be negative."""
        return self.max_model_len - self.largest_image * self.takes_images


class Grid(Protocol[_Size_contra]):
    """Turns items into counts: pure functions of integers, without I/O.

    A grid is a frozen dataclass. Its fields are the numbers that a family spec gives in ``values``
    and that a request may change. It gets all items of a request at once, because some models
    share one budget among them.
    """

    def counts(self, items: Sequence[_Size_contra], context: ModelContext, /) -> Iterable[Count]:
        """One count for each item, made when it is taken."""

    def largest_item(self, plan: CachePlan, /) -> Iterable[Any] | int:
        """The item with which the engine plans its encoder cache, or the number of its features."""


AnyGrid: TypeAlias = Grid[Any]
"""A grid of any modality."""


def max_embeds(grid: AnyGrid, plan: CachePlan) -> int:
    """The number of features of the largest item, with which the engine plans its cache."""
    largest = grid.largest_item(plan)
    if isinstance(largest, int):
        return largest
    context = ModelContext(plan.max_model_len, plan.encode)
    return max(count.total for item in largest for count in grid.counts([item], context))


class OneByOne(ABC, Generic[_Size]):
    """A grid that counts each item for itself, whatever the others are.

    One that looks at the others as well has a `counts` of its own.
    """

    __slots__ = ()

    @abstractmethod
    def count(self, item: _Size, /) -> Count:
        """The count of one item."""

    def counts(self, items: Sequence[_Size], _: ModelContext) -> Iterable[Count]:
        """One count for each item, made when it is taken."""
        return map(self.count, items)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledVideos(OneByOne[VideoSize]):
    """A grid of videos, by the frames that the engine decodes."""

    sampler: Sampler
    sampling: Sampling = DEFAULT  # the options of the request

    def frames(self, video: VideoSize) -> Frames:
        """The frames of a video that the engine decodes. Identities cover them, too."""
        return sample(self.sampler, video, self.sampling)


@dataclass(frozen=True, slots=True)
class MergedPatches(OneByOne[ImageSize]):
    """A grid of images, in which a token is a square of patches."""

    patch_size: int
    merge_size: int

    @property
    def factor(self) -> int:
        """The number of pixels along one side of a token."""
        return self.patch_size * self.merge_size


# Source: transformers 5.20 ``image_utils.infer_channel_dimension_format``, asked of a video as an
# array of frames, rows, columns and channels.
_TAKEN_FOR_CHANNELS: Final = (1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFrames(SampledVideos):
    """A grid of videos, in which a token is a square of a frame's patches."""

    patch_size: int
    merge_size: int

    def frames(self, video: VideoSize) -> Frames:
        if video.height in _TAKEN_FOR_CHANNELS:
            # The video then counts with its width as height, and so do those after it in one call
            # of the processor. Which videos share a call depends on the engine's cache.
            raise InexactError(
                Reason.VIDEO_NOT_PREDICTABLE,
                f"{video}: the engine's processor takes the height for a number of channels",
            )
        return sample(self.sampler, video, self.sampling)

    @property
    def factor(self) -> int:
        """The number of pixels along one side of a token."""
        return self.patch_size * self.merge_size
