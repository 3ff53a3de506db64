"""What strangers send, changed at random: media, requests, lines, specs, events and options.

A target has a corpus, a way to change one of its entries, and a function that may raise only the
errors that name a reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

import paths
from comparison import read_vectors
from hostile_files import BOXES, CHUNKS, ELEMENTS, PAGES, PNG, Form, places
from media_files import media_files
from odd_types import JSON_VALUES, changed, requests
from PIL import Image
from small_models import ALL_MODELS, write_model

from mmroute import (
    EngineSettings,
    EventsError,
    InexactError,
    ModelError,
    Normalizer,
    from_openai,
    read_audio,
    read_image,
    read_video,
)
from mmroute.errors import SpecError
from mmroute.families.spec import load_spec
from mmroute.kv_events import decode_events
from mmroute.requests.lines import json_object, request_of

_LARGEST: Final = 200_000  # bytes of an entry
_NUMBERS: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 10**6, 2**31 - 1, 2**31, 2**32 - 1)
_FORMS: Final[Mapping[bytes, Form]] = {
    b"RIFF": CHUNKS, b"\x1aE\xdf\xa3": ELEMENTS, b"\x89PNG": PNG, b"OggS": PAGES,
}  # fmt: skip
_LINES: Final = (
    "vllm serve org/model --max-model-len 4096 --limit-mm-per-prompt '{\"image\": 2}'",
    "VLLM_USE_RUST_FRONTEND=1 vllm serve org/model --enable-lora --lora-modules a=/b",
    "--block-size 32 --prefix-caching-hash-algo sha256_cbor --chat-template '{{ messages }}'",
    "python -m vllm.entrypoints.openai.api_server --model m --mm-processor-kwargs.max_pixels 9",
    'vllm serve m --speculative-config \'{"method": "eagle", "num_speculative_tokens": 3}\'',
    "sglang serve --model-path org/model --page-size 64 --chat-template chatml",
    "python -m sglang.launch_server --model m --context-length 4096 --enable-multimodal",
)


class Target(NamedTuple):
    """Something that reads what strangers send."""

    corpus: Callable[[], Sequence[bytes]]
    changed: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes], object]  # raises only `ERRORS`


ERRORS: Final = (InexactError, ModelError, EventsError, SpecError)
"""The errors with a named reason."""


def changed_bytes(data: bytes, draw: random.Random) -> bytes:
    """Other numbers, and parts that are cut, repeated, moved or left out, wherever they are."""
    for _ in range(draw.choice([1, 1, 2, 4])):
        at, end = sorted(draw.choices(range(len(data) + 1), k=2))
        change = draw.choice(["number", "number", "byte", "cut", "repeat", "drop", "move"])
        if change == "number":
            number = draw.choice(_NUMBERS).to_bytes(4, draw.choice(["big", "little"]))
            data = data[:at] + number + data[at + 4 :]
        elif change == "byte":
            data = data[:at] + draw.randbytes(1) + data[at + 1 :]
        elif change == "cut":
            data = data[:end]
        elif change == "repeat":
            data = data[:at] + data[at:end] * draw.choice([2, 3, 50]) + data[end:]
        elif change == "drop":
            data = data[:at] + data[end:]
        else:
            data = data[end:] + data[at:end] + data[:at]
        data = data[:_LARGEST]
    return data


def changed_file(data: bytes, draw: random.Random) -> bytes:
    """A file of whose parts one is changed, repeated, moved or left out; of others their bytes."""
    form = BOXES if data[4:8] in (b"ftyp", b"moov", b"mdat") else _FORMS.get(data[:4])
    if form is None or draw.random() < 0.3:
        return changed_bytes(data, draw)
    try:
        parts = form.parts(data)
    except (IndexError, ValueError, struct.error, RecursionError):  # of a file that is broken
        return changed_bytes(data, draw)
    for _ in range(draw.choice([1, 1, 2, 4])):
        found = list(places(parts))
        if not found:
            break
        among, at = draw.choice(found)
        name, content = among[at]
        change = draw.choice(["content", "content", "repeat", "nest", "drop", "move"])
        if change == "content" and isinstance(content, bytes):
            among[at] = [name, changed_bytes(content, draw)]
        elif change == "repeat":
            among[at:at] = [[name, content]] * draw.choice([1, 2, 100])
        elif change == "nest":
            among[at] = [name, [[name, content]]]
        elif change == "drop":
            del among[at]
        else:
            among.insert(draw.randrange(len(among)), among.pop(at))
    try:
        return form.written(parts)[:_LARGEST]
    except (TypeError, ValueError):  # a part without a name within another one
        return changed_bytes(data, draw)


def changed_json(data: bytes, draw: random.Random) -> bytes:
    """A JSON object with values of other types, or with other bytes."""
    if draw.random() < 0.8:
        with contextlib.suppress(ValueError, RecursionError):
            return json.dumps(changed(json.loads(data), draw, JSON_VALUES)).encode()
    return changed_bytes(data, draw)


def _files(room: str) -> Sequence[bytes]:
    return [file.data for file in media_files(room).values() if file.data]


def _pictures() -> Sequence[bytes]:
    exif = Image.Exif()
    exif[0x112] = 6
    kinds: Sequence[tuple[str, str, dict[str, Any]]] = [
        ("PNG", "RGBA", {"exif": exif}), ("PNG", "P", {}), ("JPEG", "RGB", {"exif": exif}),
        ("JPEG", "L", {"progressive": True}), ("WEBP", "RGBA", {"exif": exif}), ("GIF", "P", {}),
        ("BMP", "RGB", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("TIFF", "1", {}),
        ("AVIF", "RGB", {"exif": exif}),
    ]  # fmt: skip
    found = []
    for kind, mode, options in kinds:
        file = io.BytesIO()
        Image.new(mode, (40, 30), 1).save(file, kind, **options)
        found.append(file.getvalue())
    return found


def _lines() -> Sequence[bytes]:
    return [json.dumps(request).encode() for request in requests()]


@cache
def _normalizers() -> Sequence[Normalizer]:
    directory = Path(mkdtemp())
    write_model(ALL_MODELS["small-qwen3-vl"](), directory)
    return [Normalizer.from_pretrained(directory, backend=name) for name in ("vllm", "sglang")]


def _answer(line: bytes) -> None:
    request = request_of(json_object(line))
    for normalizer in _normalizers():
        normalizer.answer(request)


def _answer_body(line: bytes) -> None:
    body = json_object(line)
    for normalizer, backend in zip(_normalizers(), ("vllm", "sglang"), strict=True):
        with contextlib.suppress(InexactError):
            normalizer.answer(from_openai(body, backend=backend))


def _specs() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted((paths.ROOT / "model_specs").glob("*.toml"))]


def _events() -> Sequence[bytes]:
    _, cases = read_vectors(paths.VECTORS / "kv_events" / "batches.jsonl")
    return [bytes.fromhex(case["payload"]) for case in cases]


TARGETS: Final[Mapping[str, Target]] = {
    "videos": Target(lambda: _files("videos"), changed_file, read_video),
    "audios": Target(lambda: _files("audios"), changed_file, read_audio),
    "images": Target(_pictures, changed_file, read_image),
    "requests": Target(_lines, changed_json, _answer),
    "bodies": Target(_lines, changed_json, _answer_body),
    "specs": Target(_specs, changed_bytes, lambda d: load_spec(d.decode(errors="replace"), "a")),
    "events": Target(_events, changed_bytes, decode_events),
    "options": Target(
        lambda: [line.encode() for line in _LINES],
        changed_bytes,
        lambda data: EngineSettings.from_args(data.decode(errors="replace")),
    ),
}
"""All targets, by name."""


def run(target: Target, seed: int) -> bytes:
    """One run: the entry that was read. Raises what the target must not raise."""
    draw = random.Random(seed)
    data = target.changed(draw.choice(_corpus(target)), draw)
    with contextlib.suppress(*ERRORS):
        target.read(data)
    return data


@cache
def _corpus(target: Target) -> Sequence[bytes]:
    return target.corpus()
