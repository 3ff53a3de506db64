"""The header of a GGUF file, read only for the tokenizer's part.

The header is a sequence of length-prefixed values. Reading all of a vocabulary of 150,000 tokens
and its merges takes 0.1 s this way, and 7 s with the `gguf` library, which makes an array view of
each of them.
Source: ggml-org/ggml ``docs/gguf.md``, versions 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mmroute.errors import malformed

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING, _ARRAY = 8, 9
# Type -> struct code, of the types of fixed size.
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
                   11: "q", 12: "d"}  # fmt: skip
_LENGTH: Final = struct.Struct("<Q")


def read_header(path: Path, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The values of some keys: numbers, texts, and lists of them.

    Args:
        path: the file.
        wanted: returns true for a key whose value is to be kept.

    Raises:
        ModelError: `malformed_file` if the header does not follow the format.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _Reader(content).header(wanted)
        except (ValueError, struct.error, UnicodeDecodeError, IndexError) as error:
            raise malformed(f"{path} has no GGUF header that can be read: {error}.") from error


class _Reader:
    """Reads one value after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._size = len(content)
        self._at = 0

    def header(self, wanted: Callable[[str], bool]) -> dict[str, Any]:
        if self._content[:4] != MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._scalar(4)
        if version not in _VERSIONS:
            raise ValueError(
                f"version {version} is not one of {_VERSIONS} (a file of the other byte order?)"
            )
        self._at += _LENGTH.size  # the number of tensors
        fields: dict[str, Any] = {}
        for _ in range(self._count(1)):
            key = self._string().decode()
            if key in fields:
                raise ValueError(f"{key} occurs twice")
            value = self._value(self._scalar(4))
            if wanted(key):
                fields[key] = _decoded(value)
        return fields

    def _scalar(self, kind: int) -> Any:
        if kind not in _SCALARS:
            raise ValueError(f"there is no value type {kind}")
        code = struct.Struct("<" + _SCALARS[kind])
        (value,) = code.unpack_from(self._content, self._at)
        self._at += code.size
        return value

    def _count(self, smallest: int) -> int:
        """Read a count of elements, and check that the rest of the file can hold so many.

        Each element takes at least `smallest` bytes.
        """
        (count,) = _LENGTH.unpack_from(self._content, self._at)
        self._at += _LENGTH.size
        if count * smallest > self._size - self._at:
            raise ValueError(f"{count} values at byte {self._at} do not fit into the file")
        return int(count)

    def _string(self) -> bytes:
        length = self._count(1)
        self._at += length
        return self._content[self._at - length : self._at]

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(kind)
        element = self._scalar(4)
        if element == _STRING:
            return self._strings()
        if element not in _SCALARS:
            raise ValueError(f"a list of values of type {element} is not known")
        code = _SCALARS[element]
        count = self._count(struct.calcsize("<" + code))
        values = struct.unpack_from(f"<{count}{code}", self._content, self._at)
        self._at += struct.calcsize(f"<{count}{code}")
        return list(values)

    def _strings(self) -> list[bytes]:
        # Local names make this loop faster, in which most of the time of a header goes.
        count, content, size, read, at = (
            self._count(_LENGTH.size), self._content, self._size, _LENGTH.unpack_from, self._at,
        )  # fmt: skip
        texts = []
        for _ in range(count):
            start = at + 8
            (length,) = read(content, at)
            at = start + length
            if at > size:
                raise ValueError(f"a text at byte {start} does not fit into the file")
            texts.append(content[start:at])
        self._at = at
        return texts


def _decoded(value: Any) -> Any:
    """A value with its texts decoded; those of values that are not wanted need not be UTF-8."""
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [text.decode() for text in value]
    return value.decode() if isinstance(value, bytes) else value
