"""The items of one request, each with what is known of it, within the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mmroute.chat.conversation import MediaPart
from mmroute.engines.profile import EngineProfile
from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.images.data_url import is_data_url
from mmroute.images.reading import read_image
from mmroute.items import Image, ImageFile, ImageSize, size_of
from mmroute.net.links import ImageLinks

if TYPE_CHECKING:
    from mmroute.net.fetching import LinkFetcher

__all__ = ["images_of_parts", "left_over", "with_uuid", "within_limits"]

_BYTES_PER_PIXEL: Final = 4


def images_of_parts(
    parts: Sequence[MediaPart],
    given: Sequence[Image],
    engine: EngineProfile,
    links: ImageLinks | None,
) -> tuple[Image, ...]:
    """The image of each image part of the messages, in order.

    A data URL carries its own image. A link to an allowed host is followed. Every other part
    takes the next of the images that were given with the request.

    Raises:
        InexactError: `image_size_unknown`; `image_count_mismatch`; what reading or fetching an
            image raises; what `within_limits` raises.
    """
    if len(parts) > engine.max_items:
        raise _too_many(engine)
    waiting = iter(given)
    images = within_limits(_images(parts, waiting, engine, links), engine)
    left = len(list(waiting))
    if left:
        raise left_over(left, len(given))
    return images


def left_over(left: int, given: int) -> InexactError:
    """Of the images given with a request, some have no part to take them."""
    return InexactError(
        Reason.IMAGE_COUNT_MISMATCH,
        f"`images` has {given} sizes, and the messages have {given - left} image parts to take "
        "them (a data URL, or a link that is followed, carries its own size); add a "
        '{"type": "image"} part for each',
    )


def within_limits(images: Iterable[Image], engine: EngineProfile) -> tuple[Image, ...]:
    """All images of a request, if the engine takes them together.

    Raises:
        InexactError: `too_many_images`, `image_refused`.
    """
    taken: list[Image] = []
    decoded = 0
    for image in images:
        taken.append(image)
        if len(taken) > engine.max_items:
            raise _too_many(engine)
        size = size_of(image)
        pixels = size.width * size.height
        if pixels > engine.max_image_pixels:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes no image of more than {engine.max_image_pixels} pixels, "
                f"found {size}",
            )
        decoded += pixels * _BYTES_PER_PIXEL
        if decoded > engine.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {engine.max_decoded_bytes} bytes of images for one "
                f"request; these have {decoded} or more",
            )
    return tuple(taken)


def _images(
    parts: Sequence[MediaPart],
    waiting: Iterator[Image],
    engine: EngineProfile,
    links: ImageLinks | None,
) -> Iterator[Image]:
    """Each image when it is asked for, so that no more are fetched than are taken."""
    fetcher = None if links is None else _fetcher(links)
    upright = engine.applies_exif_orientation
    for part in parts:
        uuid, url = part.uuid, part.url
        if url is not None and is_data_url(url):
            yield read_image(url, uuid=uuid, upright=upright)
        elif url is not None and fetcher is not None and fetcher.may_follow(url):
            yield read_image(fetcher.fetch(url), uuid=uuid, upright=upright)
        else:
            image = next(waiting, None)
            if image is None:
                raise _missing(part.number, url, links)
            yield with_uuid(image, uuid)


def _fetcher(links: ImageLinks) -> LinkFetcher:
    from mmroute.net.fetching import LinkFetcher  # httpcore is rarely needed

    return LinkFetcher(links)


def _missing(number: int, url: str | None, links: ImageLinks | None) -> InexactError:
    if url is None:
        return InexactError(
            Reason.IMAGE_COUNT_MISMATCH,
            f"`images` has no size for image part {number}; give the width and height of every "
            "image that is not a data URL, in order",
        )
    if links is None:
        return InexactError(
            Reason.IMAGE_SIZE_UNKNOWN,
            f"image part {number} is a link, links are not followed, and `images` has no size "
            'for it; give its {"width", "height"} in `images`, or allow its host',
        )
    return InexactError(
        Reason.IMAGE_LINK_REFUSED,
        f"image part {number} is a link to a host that is not among the allowed ones, and "
        f"`images` has no size for it: {shown(url)}",
    )


def with_uuid(image: Image, uuid: str | None) -> Image:
    """An image by the name its part has.

    Raises:
        InexactError: `invalid_request` if it has another one.
    """
    size = size_of(image)
    if uuid is None or uuid == size.uuid:
        return image
    if size.uuid is not None:
        raise invalid(
            f"an image part has the uuid {shown(uuid)}, and its entry in `images` has "
            f"{shown(size.uuid)}"
        )
    named = ImageSize(size.width, size.height, uuid)
    if isinstance(image, ImageFile):
        return ImageFile(named, image.stored, image.converted, image.data)
    return named


def _too_many(engine: EngineProfile) -> InexactError:
    return InexactError(
        Reason.TOO_MANY_IMAGES,
        f"more than {engine.max_items} images; the engine takes no more in one prompt",
    )
