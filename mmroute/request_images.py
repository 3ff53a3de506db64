"""The images of one request, each with what is known of it, within the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmroute.engines.profile import BackendProfile
from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.images.data_url import is_data_url
from mmroute.images.reading import read_image
from mmroute.net.links import ImageLinks
from mmroute.request import Image, ImageFile, ImageSize, checked_uuid, size_of

if TYPE_CHECKING:
    from mmroute.net.fetching import LinkFetcher

__all__ = ["admit", "images_of_parts", "left_over", "url_of", "uuid_of", "with_uuid"]

_BYTES_PER_PIXEL: Final = 4


def images_of_parts(
    parts: Sequence[Mapping[str, Any]],
    given: Sequence[Image],
    backend: BackendProfile,
    links: ImageLinks | None,
) -> tuple[Image, ...]:
    """The image of each image part of the messages, in order.

    A data URL carries its own image. A link to an allowed host is followed. Every other part
    takes the next of the images that were given with the request.

    Raises:
        InexactError: `image_size_unknown`; `image_count_mismatch`; what reading or fetching an
            image raises; what `admit` raises.
    """
    if len(parts) > backend.max_images:
        raise _too_many(backend)
    waiting = iter(given)
    images = admit(_images(parts, waiting, backend, links), backend)
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


def admit(images: Iterable[Image], backend: BackendProfile) -> tuple[Image, ...]:
    """All images of a request, if the engine takes them together.

    Raises:
        InexactError: `too_many_images`, `image_refused`.
    """
    admitted: list[Image] = []
    decoded = 0
    for image in images:
        admitted.append(image)
        if len(admitted) > backend.max_images:
            raise _too_many(backend)
        size = size_of(image)
        pixels = size.width * size.height
        if pixels > backend.max_image_pixels:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes no image of more than {backend.max_image_pixels} pixels, "
                f"found {size}",
            )
        decoded += pixels * _BYTES_PER_PIXEL
        if decoded > backend.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {backend.max_decoded_bytes} bytes of images for one "
                f"request; these have {decoded} or more",
            )
    return tuple(admitted)


def _images(
    parts: Sequence[Mapping[str, Any]],
    waiting: Iterator[Image],
    backend: BackendProfile,
    links: ImageLinks | None,
) -> Iterator[Image]:
    """Each image when it is asked for, so that no more are fetched than are admitted."""
    fetcher = None if links is None else _fetcher(links)
    upright = backend.applies_exif_orientation
    for number, part in enumerate(parts, 1):
        uuid = url = None
        if len(part) > 1 or "type" not in part:
            uuid, url = uuid_of(part), url_of(part)
        if url is not None and is_data_url(url):
            yield read_image(url, uuid=uuid, upright=upright)
        elif url is not None and fetcher is not None and fetcher.may_follow(url):
            yield read_image(fetcher.fetch(url), uuid=uuid, upright=upright)
        else:
            image = next(waiting, None)
            if image is None:
                raise _missing(number, url, links)
            yield with_uuid(image, uuid)


def _fetcher(links: ImageLinks) -> LinkFetcher:
    from mmroute.net.fetching import LinkFetcher  # noqa: PLC0415 - httpcore is rarely needed

    return LinkFetcher(links)


def uuid_of(part: Mapping[str, Any]) -> str | None:
    """The client's name for the image; the engine takes the text of whatever is there."""
    uuid = part.get("uuid")
    return checked_uuid(None if uuid is None else str(uuid))


def url_of(part: Mapping[str, Any]) -> str | None:
    """The link or data URL of an image part; None if it has none."""
    link = part.get("image_url")
    url = link.get("url") if isinstance(link, Mapping) else link
    return url if isinstance(url, str) else None


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


def _too_many(backend: BackendProfile) -> InexactError:
    return InexactError(
        Reason.TOO_MANY_IMAGES,
        f"more than {backend.max_images} images; the engine takes no more in one prompt",
    )
