"""Geometries that count one item after the other; for images of one run, only `count` is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from mmroute.geometry.processor_kwargs import read_scoped_kwargs
from mmroute.geometry.replacement import ModelContext, Overrides, Replacement, fill, framed
from mmroute.requests.items import AudioLength, ImageSize, VideoSize

_Size = TypeVar("_Size", ImageSize, VideoSize, AudioLength)


class OneByOne(ABC, Generic[_Size]):
    """Each item has a replacement of its own, whatever the others are."""

    __slots__ = ()

    @abstractmethod
    def replacement(self, item: _Size, context: ModelContext, /) -> Replacement:
        """The replacement of one item.

        Raises:
            InexactError: `image_refused`, `item_refused`, `item_too_large`.
        """

    def replacements(self, items: Sequence[_Size], context: ModelContext) -> Iterator[Replacement]:
        """One replacement for each item, made when it is taken."""
        return (self.replacement(item, context) for item in items)


class AudioOneByOne(OneByOne[AudioLength]):
    """The same for audio. What a request may change of its processing was not observed."""

    __slots__ = ()

    def with_overrides(self, overrides: Overrides) -> Self:
        read_scoped_kwargs({**overrides.processor, **overrides.media_io}, "audio_kwargs")
        return self


@dataclass(frozen=True, slots=True)
class FilledImages(OneByOne[ImageSize]):
    """Each image is its image tokens and nothing else.

    Attributes:
        image_token_id: a feature position.
    """

    image_token_id: int

    @abstractmethod
    def count(self, image: ImageSize) -> int:
        """The number of feature positions.

        Raises:
            InexactError: `image_refused`.
        """

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        return fill(self.image_token_id, self.count(image))


@dataclass(frozen=True, slots=True)
class FramedImages(FilledImages):
    """Each image is its image tokens between a start and an end token.

    Attributes:
        start_token_id: what opens an image.
        end_token_id: what closes it.
    """

    start_token_id: int
    end_token_id: int

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        return framed(
            self.start_token_id, self.image_token_id, self.count(image), self.end_token_id
        )
