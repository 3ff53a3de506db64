"""Images that are one run of one token: what is left for a geometry is to count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmroute.geometry.replacement import ModelContext, Replacement, fill, framed
from mmroute.items import ImageSize

__all__ = ["FilledImages", "FramedImages"]


@dataclass(frozen=True, slots=True)
class FilledImages(ABC):
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

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        """One run for each image, made when it is taken.

        Raises:
            InexactError: `image_refused`, `item_too_large`.
        """
        return (fill(self.image_token_id, self.count(image)) for image in items)


@dataclass(frozen=True, slots=True)
class FramedImages(FilledImages):
    """Each image is its image tokens between a start and an end token.

    Attributes:
        start_token_id: what opens an image.
        end_token_id: what closes it.
    """

    start_token_id: int
    end_token_id: int

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        return (
            framed(self.start_token_id, self.image_token_id, self.count(image), self.end_token_id)
            for image in items
        )
