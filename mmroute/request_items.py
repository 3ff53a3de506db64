"""The items of one request, each with what is known of it, within the limits of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from mmroute.chat.conversation import MediaPart
from mmroute.engines.profile import EngineProfile
from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.images.data_url import MediaSource, is_data_url
from mmroute.images.reading import read_image
from mmroute.items import (
    AudioLength,
    ImageFile,
    Item,
    Modality,
    VideoFile,
    VideoSize,
    size_of,
)
from mmroute.net.links import ImageLinks

if TYPE_CHECKING:
    from mmroute.net.fetching import LinkFetcher
    from mmroute.request import Request

__all__ = ["Items", "check_decoded", "given_items", "items_of_parts", "left_over", "with_uuid"]

Items: TypeAlias = Mapping[Modality, Sequence[Item]]
"""The items of a request by modality, in the order of their parts."""

ItemT = TypeVar("ItemT", bound=Item)
_BYTES_PER_PIXEL: Final = 4
_BYTES_PER_FRAME_PIXEL: Final = 3
_BYTES_PER_SAMPLE: Final = 4
_MAX_AUDIO_SECONDS: Final = 600
_MAX_AUDIO_BYTES: Final = 256 << 20


def given_items(request: Request, engine: EngineProfile) -> Items:
    """The items beside a prompt, which has placeholders for them.

    Raises:
        InexactError: `too_many_images`, `image_refused`, `item_refused`,
            `unsupported_processor_kwargs`.
    """
    given: dict[Modality, Sequence[Item]] = {
        Modality.IMAGE: request.images,
        Modality.VIDEO: request.videos,
        Modality.AUDIO: request.audios,
    }
    _check_media_io(request, given)
    return {
        modality: _within_limits(modality, items, engine)
        for modality, items in given.items()
        if items
    }


def items_of_parts(
    parts: Sequence[MediaPart],
    request: Request,
    engine: EngineProfile,
    links: ImageLinks | None,
) -> Items:
    """The item of each part of the messages, in order.

    A data URL carries its own item. A link to an allowed host is followed. Every other part
    takes the next of the items of its modality that were given with the request.

    Raises:
        InexactError: `image_size_unknown`; `image_count_mismatch`, `item_count_mismatch`; what
            reading or fetching an item raises; what `given_items` raises.
    """
    given = {
        Modality.IMAGE: request.images,
        Modality.VIDEO: request.videos,
        Modality.AUDIO: request.audios,
    }
    if not parts and not any(given.values()):
        return {}
    waiting: dict[Modality, Iterator[Item]] = {m: iter(items) for m, items in given.items()}
    items: dict[Modality, Sequence[Item]] = {}
    fetcher = None if links is None else _fetcher(links)
    modalities = dict.fromkeys([part.modality for part in parts])
    for modality in modalities:
        own = parts
        if len(modalities) > 1:
            own = [part for part in parts if part.modality is modality]
        if len(own) > engine.most(modality):
            raise _too_many(modality, engine)
        read = _reader(modality, request, engine)
        if engine.media_domains:
            _check_domains(own, engine.media_domains)
        found = _items(own, waiting[modality], read, fetcher)
        items[modality] = _within_limits(modality, found, engine)
    for modality, listed in given.items():
        left = len(list(waiting[modality])) if listed else 0
        if left:
            raise left_over(modality, left, len(listed))
    _check_media_io(request, items)
    return items


def _check_media_io(request: Request, items: Items) -> None:
    """Refuse overrides for reading images, which were not observed; geometries read the others."""
    if items.get(Modality.IMAGE) and request.media_io_of(Modality.IMAGE):
        raise InexactError(
            Reason.UNSUPPORTED_PROCESSOR_KWARGS,
            "media_io_kwargs.image: what it changes was not observed; leave it out",
        )


def left_over(modality: Modality, left: int, given: int) -> InexactError:
    """Of the items given with a request, some have no part to take them."""
    return InexactError(
        _mismatch(modality),
        f"`{modality}s` has {given} sizes, and the messages have {given - left} {modality} parts "
        "to take them (a data URL, or a link that is followed, carries its own size); add a "
        f'{{"type": "{modality}"}} part for each',
    )


def check_decoded(items: Items, engine: EngineProfile, frames: Callable[[VideoSize], int]) -> None:
    """Refuse what the engine does not decode for one request.

    Args:
        items: of the request.
        engine: whose limits hold.
        frames: how many frames of a video are decoded.

    Raises:
        InexactError: `item_refused`.
    """
    if items.keys() <= {Modality.IMAGE}:
        return  # `_within_limits` has added them up
    decoded = 0
    for listed in items.values():
        for item in listed:
            match size := size_of(item):
                case VideoSize():
                    count = frames(size)
                    decoded += count * size.width * size.height * _BYTES_PER_FRAME_PIXEL
                case AudioLength():
                    decoded += size.num_samples * _BYTES_PER_SAMPLE
                case _:
                    decoded += size.width * size.height * _BYTES_PER_PIXEL
    if decoded > engine.max_decoded_bytes:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine decodes at most {engine.max_decoded_bytes} bytes of media for one "
            f"request; these have {decoded}",
        )


_Read: TypeAlias = Callable[[MediaSource, str | None], Item]


def _reader(modality: Modality, request: Request, engine: EngineProfile) -> _Read:
    """How a file of a modality is read, by its source and the client's name for it."""
    match modality:
        case Modality.IMAGE:
            upright = engine.applies_exif_orientation
            return lambda source, uuid: read_image(source, uuid=uuid, upright=upright)
        case Modality.VIDEO:
            from mmroute.videos.reading import DEFAULT_FRAMES, read_video  # rarely needed

            asked = request.media_io_of(modality).get("num_frames", DEFAULT_FRAMES)
            most = asked if type(asked) is int else DEFAULT_FRAMES  # refused where it is checked
            return lambda source, uuid: read_video(source, uuid=uuid, max_frames=most)
        case Modality.AUDIO:
            from mmroute.audios.reading import read_audio

            return lambda source, uuid: read_audio(source, uuid=uuid)


def _items(
    parts: Sequence[MediaPart],
    waiting: Iterator[Item],
    read: _Read,
    fetcher: LinkFetcher | None,
) -> Iterator[Item]:
    """Each item when it is asked for, so that no more are fetched than are taken."""
    for part in parts:
        uuid, url = part.uuid, part.url
        if url is not None and is_data_url(url):
            yield read(url, uuid)
        elif url is not None and fetcher is not None and fetcher.may_follow(url):
            yield read(fetcher.fetch(url), uuid)
        else:
            item = next(waiting, None)
            if item is None:
                raise _missing(part, followed=fetcher is not None)
            yield with_uuid(item, uuid)


def _check_domains(parts: Sequence[MediaPart], allowed: frozenset[str]) -> None:
    for part in parts:
        link = urlsplit(part.url or "")
        if link.scheme in ("http", "https") and link.hostname not in allowed:
            raise InexactError(
                Reason.IMAGE_LINK_REFUSED,
                f"the engine follows links to {', '.join(sorted(allowed))} only, found "
                f"{shown(link.hostname)}",
            )


def _within_limits(
    modality: Modality, items: Iterable[Item], engine: EngineProfile
) -> tuple[Item, ...]:
    """All items of a modality, if the engine takes them together."""
    taken: list[Item] = []
    most = engine.most(modality)
    decoded = 0
    for item in items:
        taken.append(item)
        if len(taken) > most:
            raise _too_many(modality, engine)
        size = size_of(item)
        if isinstance(size, AudioLength):
            _check_audio(size)
            continue
        pixels = size.width * size.height
        if pixels > engine.max_image_pixels:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes no picture of more than {engine.max_image_pixels} pixels, "
                f"found {size}",
            )
        if isinstance(size, VideoSize):
            continue
        decoded += pixels * _BYTES_PER_PIXEL
        if decoded > engine.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {engine.max_decoded_bytes} bytes of images for one "
                f"request; these have {decoded} or more",
            )
    return tuple(taken)


def _check_audio(audio: AudioLength) -> None:
    decoded = audio.num_samples * audio.channels * _BYTES_PER_SAMPLE
    if audio.num_samples > _MAX_AUDIO_SECONDS * audio.sampling_rate or decoded > _MAX_AUDIO_BYTES:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine decodes at most {_MAX_AUDIO_SECONDS} seconds and {_MAX_AUDIO_BYTES} bytes "
            f"of audio, found {audio}",
        )


def _fetcher(links: ImageLinks) -> LinkFetcher:
    from mmroute.net.fetching import LinkFetcher  # httpcore is rarely needed

    return LinkFetcher(links)


def _missing(part: MediaPart, *, followed: bool) -> InexactError:
    modality, number, url = part.modality, part.number, part.url
    needs = _NUMBERS[modality]
    if url is None:
        return InexactError(
            _mismatch(modality),
            f"`{modality}s` has no size for {modality} part {number}; give the {needs} of every "
            f"{modality} that is not a data URL, in order",
        )
    if not followed:
        return InexactError(
            Reason.IMAGE_SIZE_UNKNOWN,
            f"{modality} part {number} is a link, links are not followed, and `{modality}s` has no "
            f"size for it; give its {needs} in `{modality}s`, or allow its host",
        )
    return InexactError(
        Reason.IMAGE_LINK_REFUSED,
        f"{modality} part {number} is a link to a host that is not among the allowed ones, and "
        f"`{modality}s` has no size for it: {shown(url)}",
    )


_NUMBERS: Final = {
    Modality.IMAGE: "width and height",
    Modality.VIDEO: "width, height, num_frames and fps",
    Modality.AUDIO: "num_samples and sampling_rate",
}


def _mismatch(modality: Modality) -> Reason:
    image = modality is Modality.IMAGE
    return Reason.IMAGE_COUNT_MISMATCH if image else Reason.ITEM_COUNT_MISMATCH


def with_uuid(item: ItemT, uuid: str | None) -> ItemT:
    """An item by the name its part has.

    Raises:
        InexactError: `invalid_request` if it has another one.
    """
    size = size_of(item)
    if uuid is None or uuid == size.uuid:
        return item
    if size.uuid is not None:
        raise invalid(
            f"a part of type {item.modality} has the uuid {shown(uuid)}, and its entry in "
            f"`{item.modality}s` has {shown(size.uuid)}"
        )
    if isinstance(item, ImageFile):
        return replace(item, size=replace(item.size, uuid=uuid))
    if isinstance(item, VideoFile):
        return replace(item, size=replace(item.size, uuid=uuid))
    return replace(item, uuid=uuid)


def _too_many(modality: Modality, engine: EngineProfile) -> InexactError:
    return InexactError(
        Reason.TOO_MANY_IMAGES,
        f"more than {engine.most(modality)} {modality}s; the engine takes no more in one prompt",
    )
