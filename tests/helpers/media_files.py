"""Small media files, and what the engine's own readers say of them (generate_media.py)."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "core"


@dataclass(frozen=True)
class MediaFile:
    """One file; `engine` is None where the engine cannot read it."""

    name: str
    data: bytes
    engine: dict[str, Any] | None

    def damaged(self, number: int, within: int) -> Iterator[bytes]:
        """Copies with up to six other bytes among the first ones, every second one cut."""
        draw = random.Random(self.name)
        for copy in range(number):
            data = bytearray(self.data)
            for _ in range(draw.randint(1, 6)):
                at = draw.randrange(min(len(data), within))
                data[at] = draw.choice([0, 255, draw.randrange(256)])
            yield bytes(data[: draw.randrange(len(data))] if copy % 2 else data)


def media_files(room: str) -> dict[str, MediaFile]:
    """The files of `videos` or `audios`, by name."""
    files = {}
    for line in (ROOT / room / "files.jsonl").read_text().splitlines():
        fields = json.loads(line)
        data = zlib.decompress(base64.b64decode(fields["file"]))
        files[fields["name"]] = MediaFile(fields["name"], data, fields["engine"])
    return files


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_url(width: int, height: int) -> str:
    """A grey picture as a data URL, the same bytes everywhere."""
    rows = b"".join(b"\0" + b"\x80" * (3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    # Level 0: what a compressor makes of it depends on its version.
    data = zlib.compress(rows, 0)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND")
    return f"data:image/png;base64,{base64.b64encode(raw).decode()}"
