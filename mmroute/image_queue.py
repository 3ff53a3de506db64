"""The images of one request, as its messages take them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.backends import BackendProfile
from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.images.data_url import is_data_url
from mmroute.images.links import ImageLinks
from mmroute.images.reading import read_image
from mmroute.request import ImageSize

__all__ = ["ImageQueue"]

_BYTES_PER_PIXEL: Final = 4


class ImageQueue:
    """Gives every image part its image, within the limits of the engine.

    A data URL carries its own image. A link is followed, if links are. Every other image part
    takes the next of the images that were given with the request.
    """

    def __init__(
        self, given: Sequence[ImageSize], backend: BackendProfile, links: ImageLinks | None
    ) -> None:
        self._given = given
        self._next_given = 0
        self._backend = backend
        self._links = links
        self._decoded_bytes = 0
        self._named: dict[str, ImageSize] = {}
        self._taken: list[ImageSize] = []

    def take(self, part: Mapping[str, Any]) -> int:
        """Give an image part its image, and return its number, counted from 1.

        Raises:
            InexactError: `image_size_unknown`; `image_count_mismatch` if none is left; what
                reading or fetching the image raises; what `take_rest` raises.
        """
        uuid = part.get("uuid")
        if uuid is not None and not isinstance(uuid, str):
            raise invalid(f"the uuid of an image part must be a string, found {shown(uuid)}")
        link = part.get("image_url")
        url = link.get("url") if isinstance(link, Mapping) else link
        upright = self._backend.applies_exif_orientation
        if isinstance(url, str) and is_data_url(url):
            return self._admit(read_image(url, uuid=uuid, upright=upright))
        if isinstance(url, str) and self._links is not None:
            return self._admit(self._links.fetch_image(url, uuid=uuid, upright=upright))
        return self._admit(self._given_image(uuid, is_link=url is not None))

    def take_rest(self) -> tuple[ImageSize, ...]:
        """All images of a prompt, whose placeholders take them in order.

        Raises:
            InexactError: `too_many_images`, `image_refused`; `invalid_request` if one uuid
                names two sizes: the engine caches by it, and would reuse the first one's tokens.
        """
        for image in self._given[self._next_given :]:
            self._admit(image)
        self._next_given = len(self._given)
        return tuple(self._taken)

    def finish(self) -> tuple[ImageSize, ...]:
        """All images, once every image part has taken its own.

        Raises:
            InexactError: `image_count_mismatch` if some are left over.
        """
        if self._next_given < len(self._given):
            raise InexactError(
                Reason.IMAGE_COUNT_MISMATCH,
                f"`images` has {len(self._given)} sizes, and the messages have "
                f"{self._next_given} image parts to take them (a data URL carries its own size); "
                'add a {"type": "image"} part for each',
            )
        return tuple(self._taken)

    def _given_image(self, uuid: str | None, *, is_link: bool) -> ImageSize:
        if self._next_given >= len(self._given):
            if is_link:
                raise InexactError(
                    Reason.IMAGE_SIZE_UNKNOWN,
                    f"image part {len(self._taken) + 1} is a link, links are not followed, and "
                    '`images` has no size for it; give its {"width", "height"} in `images`, or '
                    "allow its host",
                )
            raise InexactError(
                Reason.IMAGE_COUNT_MISMATCH,
                "the messages have more image parts than `images` has sizes "
                f"({len(self._given)}); give the width and height of every image, in order",
            )
        image = self._given[self._next_given]
        self._next_given += 1
        if uuid is None or uuid == image.uuid:
            return image
        if image.uuid is not None:
            raise invalid(
                f"an image part has the uuid {shown(uuid)}, and its entry in `images` has "
                f"{shown(image.uuid)}"
            )
        return ImageSize(image.width, image.height, uuid, image.content)

    def _admit(self, image: ImageSize) -> int:
        limits = self._backend
        if len(self._taken) >= limits.max_images:
            raise InexactError(
                Reason.TOO_MANY_IMAGES,
                f"more than {limits.max_images} images; the engine takes no more in one prompt",
            )
        pixels = image.width * image.height
        if pixels > limits.max_image_pixels:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes no image of more than {limits.max_image_pixels} pixels, "
                f"found {image}",
            )
        self._decoded_bytes += pixels * _BYTES_PER_PIXEL
        if self._decoded_bytes > limits.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {limits.max_decoded_bytes} bytes of images for one "
                f"request; these have {self._decoded_bytes} or more",
            )
        if image.uuid is not None:
            first = self._named.setdefault(image.uuid, image)
            if (first.width, first.height) != (image.width, image.height):
                raise invalid(
                    f"the uuid {shown(image.uuid)} names images of two sizes, {first} and {image}"
                )
        self._taken.append(image)
        return len(self._taken)
