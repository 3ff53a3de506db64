"""Files whose structure is changed: counts, sizes, and parts that are nested, repeated or left out.

A file is a list of parts. A part is a name, and its content: bytes, or parts again.
"""

from __future__ import annotations

import contextlib
import cProfile
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from hypothesis import strategies as st

from mmroute import InexactError

Parts: TypeAlias = list[list[Any]]

_LARGEST: Final = 100_000  # bytes of a file
_BOXES: Final = frozenset({
    b"edts", b"mdia", b"minf", b"moof", b"moov", b"mvex", b"stbl", b"traf", b"trak", b"udta",
})  # fmt: skip
_LISTS: Final = frozenset({b"RIFF", b"LIST"})
_ELEMENTS: Final = frozenset({
    0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0, 0x1F43B675, 0xA0, 0x1C53BB6B, 0xBB,
})  # fmt: skip
_NUMBERS: Final = (0, 1, 2, 0x7F, 0xFF, 0xFFFF, 10**6, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)


class Form(NamedTuple):
    """How files of a container are taken apart, and put together again with the right sizes."""

    parts: Callable[[bytes], Parts]
    written: Callable[[Parts], bytes]


def _boxes(data: bytes) -> Parts:
    found, at = [], 0
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        length = length if 8 <= length <= len(data) - at else len(data) - at
        content = data[at + 8 : at + length]
        found.append([name, _boxes(content) if name in _BOXES else content])
        at += length
    return found


def _box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content) + 8) + name + content


def _chunks(data: bytes) -> Parts:
    found, at = [], 0
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        content = data[at + 8 : at + 8 + length]
        inner = [[None, content[:4]], *_chunks(content[4:])]
        found.append([name, inner if name in _LISTS else content])
        at += 8 + length + length % 2
    return found


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def _elements(data: bytes) -> Parts:
    found, at = [], 0
    while at < len(data):
        start = at + 9 - data[at].bit_length()
        width = 9 - data[start].bit_length()
        name = int.from_bytes(data[at:start])
        length = int.from_bytes(data[start : start + width]) & ((1 << 7 * width) - 1)
        content = data[start + width : start + width + length]
        found.append([name, _elements(content) if name in _ELEMENTS else content])
        at = start + width + length
    return found


def _element(name: int, content: bytes) -> bytes:
    head = name.to_bytes((name.bit_length() + 7) // 8)
    return head + (len(content) | 1 << 56).to_bytes(8) + content


def _png(data: bytes) -> Parts:
    found: Parts = [[None, data[:8]]]
    at = 8
    while at < len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        found.append([name, data[at + 8 : at + 8 + length]])
        at += length + 12
    return found


def _png_chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def _segments(data: bytes) -> Parts:
    found: Parts = [[None, data[:2]]]
    at = 2
    while at < len(data) and data[at : at + 2] != b"\xff\xda":
        length = int.from_bytes(data[at + 2 : at + 4])
        found.append([data[at : at + 2], data[at + 4 : at + 2 + length]])
        at += 2 + length
    return [*found, [None, data[at:]]]


def _segment(name: bytes, content: bytes) -> bytes:
    return name + struct.pack(">H", min(len(content) + 2, 0xFFFF)) + content


def _pages(data: bytes) -> Parts:
    return [[None, b"OggS" + page] for page in data.split(b"OggS")[1:]]


def signed(page: bytes) -> bytes:
    """A page of Ogg with the checksum of its bytes."""
    page = page[:22] + bytes(4) + page[26:]
    checksum = 0
    for byte in page:
        checksum = checksum << 8 & 0xFFFFFFFF ^ _CHECKSUMS[checksum >> 24 ^ byte]
    return page[:22] + checksum.to_bytes(4, "little") + page[26:]


def _checksum_of(byte: int) -> int:
    checksum = byte << 24
    for _ in range(8):
        checksum = checksum << 1 ^ (0x104C11DB7 if checksum >> 31 else 0)
    return checksum


_CHECKSUMS: Final = [_checksum_of(byte) for byte in range(256)]


def pieces(size: int) -> Form:
    """Files of parts of one size, without names."""
    return Form(
        lambda data: [[None, data[at : at + size]] for at in range(0, len(data), size)],
        lambda parts: _joined(parts, _box),
    )


def _joined(parts: Parts, write: Callable[[Any, bytes], bytes]) -> bytes:
    contents = []
    for name, content in parts:
        inner = content if isinstance(content, bytes) else _joined(content, write)
        contents.append(inner if name is None else write(name, inner))
    return b"".join(contents)


BOXES: Final = Form(_boxes, lambda parts: _joined(parts, _box))
CHUNKS: Final = Form(_chunks, lambda parts: _joined(parts, _chunk))
ELEMENTS: Final = Form(_elements, lambda parts: _joined(parts, _element))
PNG: Final = Form(_png, lambda parts: _joined(parts, _png_chunk))
SEGMENTS: Final = Form(_segments, lambda parts: _joined(parts, _segment))
PAGES: Final = Form(_pages, lambda parts: b"".join(signed(_joined([part], _box)) for part in parts))


def places(parts: Parts) -> Iterator[tuple[Parts, int]]:
    """The lists of parts, and the index of each part in them."""
    for at, (_, content) in enumerate(parts):
        yield parts, at
        if not isinstance(content, bytes):
            yield from places(content)


@st.composite
def _numbered(draw: st.DrawFn, content: bytes, change: str) -> bytes:
    """A content with another number, and perhaps with many rows or nothing behind it."""
    start = 4 * draw(st.integers(0, max(0, min(len(content) // 4, 16) - 1)))
    number = draw(st.sampled_from(_NUMBERS)).to_bytes(4, draw(st.sampled_from(["big", "little"])))
    behind = content[start + 4 :]
    if change == "rows":
        behind = (behind[:12] * _LARGEST)[: draw(st.integers(0, _LARGEST))]
        number = draw(st.sampled_from([number, (len(behind) // 4).to_bytes(4)]))
    elif change == "cut":
        behind = b""
    return content[:start] + number + behind


@st.composite
def hostile(draw: st.DrawFn, form: Form, files: list[bytes]) -> bytes:
    """A file with up to four changes of its structure."""
    parts = form.parts(draw(st.sampled_from(files)))
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(parts))[:500]
        if not found:
            break
        among, at = draw(st.sampled_from(found))
        name, content = among[at]
        change = draw(st.sampled_from(["number", "rows", "repeat", "nest", "empty", "cut", "drop"]))
        if change == "repeat":
            size = 8 + len(form.written([[name, content]]))
            among[at : at + 1] = [[name, content]] * draw(st.integers(2, max(2, _LARGEST // size)))
        elif change == "empty":
            among[at:at] = [[name, b""]] * draw(st.integers(1, _LARGEST // 8))
        elif change == "nest":
            for _ in range(draw(st.integers(1, 50))):
                content = [[name, content]]
            among[at] = [name, content]
        elif change == "drop":
            del among[at]
        elif isinstance(content, bytes):
            among[at] = [name, draw(_numbered(content, change))]
    return form.written(parts)[: 4 * _LARGEST]


def check_cost(read: Callable[[bytes], object], data: bytes) -> None:
    """Check that a file is read or refused, in few calls and little memory for its size."""

    def answer() -> None:
        with contextlib.suppress(InexactError):
            read(data)

    tracemalloc.start()
    answer()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= max(8_000_000, 4 * len(data))
    profile = cProfile.Profile()
    profile.runcall(answer)
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls <= 200_000 + len(data) // 2
