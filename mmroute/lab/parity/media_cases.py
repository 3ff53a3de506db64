"""Requests with media whose files are made here: PNG, GIF, lists of JPEG, and WAV."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any, Final

from PIL import Image

from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.conversations import part, user
from mmroute.lab.parity.oracles.pictures import data_url
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality

_QUESTION: Final = "What happens here?"
# Width, height, frames, and hundredths of a second per frame, near the limits of frame samplers.
_VIDEOS: Final = (
    (64, 48, 1, 4), (64, 48, 2, 100), (64, 48, 3, 50), (64, 48, 4, 4), (64, 48, 5, 25),
    (320, 240, 8, 13), (90, 33, 9, 4), (40, 200, 31, 10), (64, 48, 32, 4), (64, 48, 33, 7),
    (64, 48, 64, 3), (32, 32, 150, 10), (32, 32, 301, 100),
)  # fmt: skip
_PLAIN_VIDEOS: Final = 4  # of these and the next ones every engine takes several frames
_FRAME_LISTS: Final = ((64, 48, 1), (100, 60, 5), (64, 48, 40))
# Samples and their rate, near the length of a frame, a second, a chunk, and a loss in 32 bits.
_RECORDINGS: Final = (
    (1, 16_000), (160, 16_000), (161, 16_000), (321, 16_000), (641, 16_000), (16_000, 16_000),
    (16_001, 16_000), (16_160, 16_000), (8_081, 8_000), (44_100, 44_100), (44_101, 44_100),
    (397_002, 44_100), (96_001, 48_000), (480_000, 16_000), (480_001, 16_000),
)  # fmt: skip
_PLAIN_RECORDINGS: Final = 5  # these and the next ones are a second and longer
_IMAGES: Final = ((640, 480), (97, 311), (224, 224))


def media_cases(model: ResolvedModel) -> Iterator[Case]:
    """Chats with each modality except images that the engine accepts for a model."""
    if Modality.VIDEO in model.media:
        yield from video_cases()
    if Modality.AUDIO in model.media:
        yield from audio_cases()
    yield from several_cases(tuple(model.media))


def several_cases(modalities: Collection[Modality]) -> Iterator[Case]:
    """Chats with several items of each modality, and with items of two."""
    for modality in modalities:
        yield _several(f"several-{modality}s", [item_part(modality, n) for n in range(3)])
    for one, other in combinations(modalities, 2):
        yield _several(f"{one}-beside-{other}", [item_part(one, 0), item_part(other, 1)])


def _several(name: str, items: Sequence[Mapping[str, Any]]) -> Case:
    parts = [one for item in items for one in (item, part("And this?"))]
    return Case(name, "several", {"messages": [user(*parts)]})


def item_part(modality: Modality, number: int) -> dict[str, Any]:
    """An item as a part of a message, each number another one."""
    if modality is Modality.IMAGE:
        url = data_url(*_IMAGES[number % len(_IMAGES)])
    elif modality is Modality.VIDEO:
        url = gif_url(*_VIDEOS[_PLAIN_VIDEOS + number % 3])
    else:
        url = wav_url(*_RECORDINGS[_PLAIN_RECORDINGS + number % 3])
    kind = f"{modality}_url"
    return {"type": kind, kind: {"url": url}}


def video_cases() -> Iterator[Case]:
    """Chats with one video each."""
    for width, height, frames, delay in _VIDEOS:
        name = f"video-{frames}-of-{width}x{height}-at-{delay}"
        yield _case(name, "video_url", gif_url(width, height, frames, delay))
    for width, height, frames in _FRAME_LISTS:
        listed = f"data:video/jpeg;base64,{','.join([_jpeg(width, height)] * frames)}"
        yield _case(f"video-list-{frames}-of-{width}x{height}", "video_url", listed)


def audio_cases() -> Iterator[Case]:
    """Chats with one audio each, under a name: else the engine hashes its decoded samples."""
    for samples, rate in _RECORDINGS:
        name = f"audio-{samples}-at-{rate}"
        yield _case(name, "audio_url", wav_url(samples, rate), uuid=name)


def _case(name: str, kind: str, url: str, **named: str) -> Case:
    item: dict[str, Any] = {"type": kind, kind: {"url": url}, **named}
    modality = kind.removesuffix("_url")
    return Case(name, modality, {"messages": [user(item, part(_QUESTION))]})


@cache
def gif_url(width: int, height: int, frames: int, delay: int) -> str:
    """A video as a data URL; ``delay``: hundredths of a second per frame."""
    # Each frame has another grey, because Pillow merges equal frames.
    first, *others = [Image.new("L", (width, height), n * 97 % 256) for n in range(frames)]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=delay * 10, loop=0)
    return f"data:image/gif;base64,{base64.b64encode(file.getvalue()).decode()}"


def _jpeg(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def wav_url(samples: int, rate: int) -> str:
    """A silent recording as a data URL; ``rate``: samples per second."""
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(rate)
        recording.writeframes(bytes(2 * samples))
    return f"data:audio/wav;base64,{base64.b64encode(file.getvalue()).decode()}"
