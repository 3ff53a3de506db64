"""Reads the items of one request, and checks them against the limits of the engine.

Source: vLLM ``multimodal/media/connector.py`` (`_load_file_url`); urllib3 2 ``util/url.py``, which
cuts query and fragment off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from mmroute.chat.conversation import MediaPart
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.images.data_url import is_data_url
from mmroute.images.reading import read_image
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

if TYPE_CHECKING:
    from mmroute.answering.prepared import Geometries
    from mmroute.engine import Limits
    from mmroute.images.data_url import KnownFiles
    from mmroute.net.fetching import LinkFetcher
    from mmroute.net.links import ImageLinks
    from mmroute.requests.request import Request

# The engine puts a host in front of the path, and reads that below its own working directory.
_LINK: Final = re.compile(r"file:(?://(?=/)|(?!//))([^?#]*)", re.IGNORECASE | re.DOTALL)
_MAX_BYTES: Final = 1 << 26  # of all files of one request, which are kept for their identities


class LocalFiles:
    """The files of one request."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._left = _MAX_BYTES

    def read(self, link: str) -> bytes:
        """The bytes of the file that a link names."""
        if not self._directory:
            raise invalid(
                "the engine reads files of file: links only below --allowed-local-media-path, "
                f"which it was started without; found {quoted(link)}"
            )
        try:
            return self._read(link)
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, or links that form a loop
            raise _failed(link, type(error).__name__) from error

    def _read(self, link: str) -> bytes:
        path = _LINK.match(link)
        file = Path("/", unquote(path[1]) if path else "")
        # Resolved before it is compared, so that neither .. nor a symbolic link leads out.
        if Path(self._directory).resolve() not in file.resolve().parents:
            raise InexactError(
                Reason.IMAGE_LINK_REFUSED,
                f"the link {quoted(link)} names no file below --allowed-local-media-path",
            )
        if not file.is_file():  # a pipe would block
            raise _failed(link, "there is no such file on this machine")
        size = file.stat().st_size
        if size > self._left:
            raise _failed(link, f"the files of the request have more than {_MAX_BYTES} bytes")
        self._left -= size
        with file.open("rb") as opened:
            return opened.read(size)


def is_file_link(url: str) -> bool:
    """Whether the engine reads a URL as the name of a file."""
    return url[:5].lower() == "file:"


def _failed(link: str, why: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_LINK_FAILED, f"the file of the link {quoted(link)} was not read: {why}"
    )


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


def items_beside_prompt(request: Request, limits: Limits) -> Items:
    """The items beside a prompt, which has placeholders for them."""
    items = request.items
    if request.media_io_kwargs:
        _check_media_io(request, items)
    return {modality: _within_limits(listed, limits) for modality, listed in items.items()}


def items_of_parts(
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


def check_decoded(items: Items, limits: Limits, geometries: Geometries) -> None:
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
            most = (
                num_frames if type(num_frames) is int else DEFAULT_FRAMES
            )  # refused where it is checked
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
