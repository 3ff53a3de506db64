"""Reads the items of one request, and checks them against the limits of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from mmroute.answering.local_files import LocalFiles, is_file_link
from mmroute.chat import ParsedChat
from mmroute.chat.conversation import MediaPart
from mmroute.engine import Limits
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.geometry import Geometry
from mmroute.images.data_url import KnownFiles, is_data_url
from mmroute.images.reading import read_image
from mmroute.net.links import ImageLinks
from mmroute.requests.items import (
    AudioLength,
    ImageFile,
    ImageSize,
    Item,
    Items,
    Modality,
    VideoFile,
    VideoSize,
)
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.model.resolved import MediaRules, ResolvedModel
    from mmroute.net.fetching import LinkFetcher

ItemT = TypeVar("ItemT", bound=Item)
_LEVELS: Final = range(256)


def _is_colour(value: object) -> bool:
    channels = 3
    return (
        isinstance(value, list)
        and len(value) == channels
        and all(type(level) is int and level in _LEVELS for level in value)
    )


_IMAGE_READING: Final[Mapping[str, Callable[[object], bool]]] = {
    "image_mode": lambda value: value == "RGB",
    "rgba_background_color": _is_colour,
}
"""The ``media_io_kwargs`` of images, each with the check that the picture is still RGB."""


def items_of(
    model: ResolvedModel,
    request: Request,
    chat: ParsedChat | None,
    links: ImageLinks | None,
    files: KnownFiles | None,
) -> Items:
    """The items of a request: of the parts of its chat, or else beside its prompt."""
    limits = model.engine.limits
    if chat is None:
        items = request.items
        if request.media_io_kwargs:
            _check_media_io(request, items)
        items = {modality: _within_limits(listed, limits) for modality, listed in items.items()}
        for modality, listed in items.items():
            if rules_of(model, modality, len(listed)).only_in_chats:
                raise InexactError(
                    Reason.UNSUPPORTED_MODALITY,
                    f"for the family {model.family.family} the engine takes {modality}s in chats "
                    "only; send `messages`",
                )
        return items
    why = limits.string_items
    if chat.media and why and model.chat.content_format == "string":
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, why)
    if model.chat.ignores_items:
        return {}
    for modality, parts in chat.media.items():
        rules_of(model, modality, len(parts))
    return _items_of_parts(chat.media, request, limits, links, files)


def rules_of(model: ResolvedModel, modality: Modality, count: int) -> MediaRules:
    """The rules of a modality, if the engine takes `count` items of it."""
    rules = model.media.get(modality)
    if rules is None:
        of_model = (
            f"{modality}s are not covered for this model of the family {model.family.family} on "
            f"{model.engine.release.label}"
        )
        why = model.uncovered.get(modality)
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            f"{of_model}: {why}" if why else of_model,
        )
    if rules.refused:
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"{rules.refused}: the tokens of {modality}s of such an engine are not covered",
        )
    if count > rules.max_items:
        raise InexactError(
            Reason.TOO_MANY_ITEMS,
            f"{count} {modality}s; for the family {model.family.family} the engine takes at most "
            f"{rules.max_items} in one prompt",
        )
    return rules


def _items_of_parts(
    parts: Mapping[Modality, Sequence[MediaPart]],
    request: Request,
    limits: Limits,
    links: ImageLinks | None,
    files: KnownFiles | None,
) -> Items:
    """The item of each part of the messages: its own file, or the next item beside the messages."""
    beside = request.items
    fetcher = None if links is None else _fetcher(links)
    items: dict[Modality, Sequence[Item]] = {}
    local = None
    if parts and limits.local_media_path is not None:
        local = LocalFiles(limits.local_media_path)
    for modality, own in parts.items():
        if limits.media_domains:
            _check_domains(own, limits.media_domains)
        waiting = iter(beside.get(modality, ()))
        read = _item_of_each_part(own, waiting, request, limits, fetcher, local=local, files=files)
        items[modality] = _within_limits(read, limits)
        if left := len(list(waiting)):
            raise left_over(modality, left, len(beside[modality]))
    for modality, listed in beside.items():
        if modality not in parts:
            raise left_over(modality, len(listed), len(listed))
    if request.media_io_kwargs:
        _check_media_io(request, items)
    return items


def _check_media_io(request: Request, items: Items) -> None:
    """Refuse overrides with which a processor gets no RGB picture."""
    kwargs = request.media_io_kwargs.get(Modality.IMAGE)
    if kwargs and Modality.IMAGE in items:
        for name, value in kwargs.items():
            if name not in _IMAGE_READING or not _IMAGE_READING[name](value):
                raise InexactError(
                    Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                    f"media_io_kwargs.image.{name}: found {quoted(value)}; covered are an "
                    'image_mode of "RGB", and an rgba_background_color of three integers up to 255',
                )


def left_over(modality: Modality, left: int, count: int) -> InexactError:
    """The refusal of a request that has more items than parts that take them."""
    return InexactError(
        _mismatch(modality),
        f"`{modality}s` has {count} sizes, and the messages have {count - left} {modality} parts "
        "to take them (a data URL, or a link that is followed, carries its own size); add a "
        f'{{"type": "{modality}"}} part for each',
    )


def check_decoded(items: Items, limits: Limits, geometries: Mapping[Modality, Geometry]) -> None:
    """Refuse a request with videos or audio that is too large for the engine to decode."""
    decoded = 0
    for modality, listed in items.items():
        for item in listed:
            match size := item.size:
                case ImageSize():
                    units = size.width * size.height
                case VideoSize():
                    frames = geometries[modality].frames(size)
                    units = len(frames.indices) * size.width * size.height
                case AudioLength():
                    units = size.num_samples
            decoded += units * limits.bytes_per_unit[modality]
    if decoded > limits.max_decoded_bytes:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine decodes at most {limits.max_decoded_bytes} bytes of media for one "
            f"request; these have {decoded}",
        )


def _item_of_each_part(
    parts: Sequence[MediaPart],
    waiting: Iterator[Item],
    request: Request,
    limits: Limits,
    fetcher: LinkFetcher | None,
    *,
    local: LocalFiles | None,
    files: KnownFiles | None,
) -> Iterator[Item]:
    """Yield the item of each part. No item is fetched before the caller asks for it."""
    for part in parts:
        url = part.url
        if url is not None and is_data_url(url):
            yield _read(part, url, request, limits, files)
        elif url is not None and local is not None and is_file_link(url):
            yield _read(part, local.read(url), request, limits, files)
        elif url is not None and fetcher is not None and fetcher.may_follow(url):
            yield _fetched(part, url, fetcher, limits)
        else:
            item = next(waiting, None)
            if item is None:
                raise _missing(part, followed=fetcher is not None)
            yield item if part.uuid is None else with_uuid(item, part.uuid)


def _fetched(part: MediaPart, url: str, fetcher: LinkFetcher, limits: Limits) -> Item:
    """The item behind a link: of videos and audio only the header, where that is enough."""
    accept = f"{part.modality}/*"
    match part.modality:
        case Modality.IMAGE:
            upright = limits.applies_exif_orientation
            return read_image(fetcher.fetch(url), uuid=part.uuid, upright=upright)
        case Modality.VIDEO:
            from mmroute.videos.reading import video_in  # rarely needed

            return video_in(fetcher.open(url, complete=part.uuid is None, accept=accept), part.uuid)
        case Modality.AUDIO:
            from mmroute.audios.reading import audio_in

            return audio_in(fetcher.open(url, complete=False, accept=accept), part.uuid)


def _read(
    part: MediaPart,
    source: str | bytes,
    request: Request,
    limits: Limits,
    files: KnownFiles | None,
) -> Item:
    """The item in a data URL, or in the bytes of a file."""
    match part.modality:
        case Modality.IMAGE:
            if files is not None and isinstance(source, str):
                source = files.of_url(source)
            return read_image(source, uuid=part.uuid, upright=limits.applies_exif_orientation)
        case Modality.VIDEO:
            from mmroute.videos.reading import DEFAULT_FRAMES, read_video  # rarely needed

            media_io = request.media_io_kwargs.get(part.modality, {})
            num_frames = media_io.get("num_frames", DEFAULT_FRAMES)
            # What is no integer is refused where it is checked.
            most = num_frames if type(num_frames) is int else DEFAULT_FRAMES
            return read_video(source, uuid=part.uuid, max_frames=most)
        case Modality.AUDIO:
            from mmroute.audios.reading import read_audio

            return read_audio(source, uuid=part.uuid)


def _check_domains(parts: Sequence[MediaPart], allowed: frozenset[str]) -> None:
    for part in parts:
        link = urlsplit(part.url or "")
        if link.scheme in ("http", "https") and link.hostname not in allowed:
            raise InexactError(
                Reason.IMAGE_LINK_REFUSED,
                f"the engine follows links to {', '.join(sorted(allowed))} only, found "
                f"{quoted(link.hostname)}",
            )


def _unturned(item: Item) -> Item:
    """An image with its size as stored, for an engine that applies no EXIF orientation."""
    if not isinstance(item, ImageFile):
        return item
    return replace(item, size=replace(item.unturned, uuid=item.size.uuid))


def _within_limits(items: Iterable[Item], limits: Limits) -> list[Item]:
    """The items of a modality, if they are within the limits of the engine."""
    taken: list[Item] = []
    decoded = 0
    bytes_per_pixel = limits.bytes_per_unit[Modality.IMAGE]
    for item in items if limits.applies_exif_orientation else map(_unturned, items):
        taken.append(item)
        size = item.size
        if isinstance(size, AudioLength):
            _check_audio(size, limits)
            continue
        pixels = size.width * size.height
        if pixels > limits.max_image_pixels:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes no picture of more than {limits.max_image_pixels} pixels, "
                f"found {size}",
            )
        if isinstance(size, VideoSize):
            continue
        decoded += pixels * bytes_per_pixel
        if decoded > limits.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {limits.max_decoded_bytes} bytes of images for one "
                f"request; these have {decoded} or more",
            )
    return taken


def _check_audio(audio: AudioLength, limits: Limits) -> None:
    seconds, most = limits.max_audio_seconds, limits.max_audio_bytes
    decoded = audio.num_samples * audio.channels * limits.bytes_per_unit[Modality.AUDIO]
    if audio.num_samples > seconds * audio.sampling_rate or decoded > most:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine decodes at most {seconds} seconds and {most} bytes of audio, found "
            f"{audio}",
        )


def _fetcher(links: ImageLinks) -> LinkFetcher:
    from mmroute.net.fetching import LinkFetcher  # httpcore is rarely needed

    return LinkFetcher(links)


def _missing(part: MediaPart, *, followed: bool) -> InexactError:
    modality, number, url = part.modality, part.number, part.url
    needs = _NUMBERS[modality]
    if url is None and part.uuid is not None and not _CARRYING_KEYS.isdisjoint(part.source):
        return InexactError(
            Reason.IMAGE_SIZE_UNKNOWN,
            f"{modality} part {number} has a uuid and no link: the engine may hold the {modality}, "
            f"and `{modality}s` has no size for it; give its {needs} there, or send it as a data "
            "URL",
        )
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
        f"`{modality}s` has no size for it: {quoted(url)}",
    )


_CARRYING_KEYS: Final = frozenset({"image_url", "video_url", "audio_url", "input_audio"})
_NUMBERS: Final = {
    Modality.IMAGE: "width and height",
    Modality.VIDEO: "width, height, num_frames and fps",
    Modality.AUDIO: "num_samples and sampling_rate",
}


def _mismatch(modality: Modality) -> Reason:
    image = modality is Modality.IMAGE
    return Reason.IMAGE_COUNT_MISMATCH if image else Reason.ITEM_COUNT_MISMATCH


def with_uuid(item: ItemT, uuid: str | None) -> ItemT:
    """An item with the uuid of its part."""
    own = item.size.uuid
    if uuid is None or uuid == own:
        return item
    if own is not None:
        raise invalid(
            f"a part of type {item.modality} has the uuid {quoted(uuid)}, and its entry in "
            f"`{item.modality}s` has {quoted(own)}"
        )
    if isinstance(item, ImageFile):
        return replace(item, size=replace(item.size, uuid=uuid))
    if isinstance(item, VideoFile):
        return replace(item, size=replace(item.size, uuid=uuid))
    return replace(item, uuid=uuid)
