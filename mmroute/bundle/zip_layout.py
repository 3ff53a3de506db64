"""Where the files of a zip are, read from its headers without believing them.

`zipfile` opens what may not be used here: bytes before, between and behind the files, headers that
disagree, and a directory of millions of entries, which it keeps. A zip is taken only if its files
and its directory fill it from the first byte to the last, each file described once and in the same
way in both places. Layout: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, NoReturn

from mmroute.bundle.faults import BundleError, Fault
from mmroute.errors import shown

__all__ = ["DEFLATED", "STORED", "ZipEntry", "read_layout"]

STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_END_SIGNATURE: Final = b"PK\x05\x06"
_ZIP64_LOCATOR: Final = 20
_ZIP64_SIGNATURE: Final = b"PK\x06\x07"
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_EXTRA: Final = struct.Struct("<2H")
_ZIP64_EXTRA: Final = 1
_MAX16: Final = 0xFFFF
_MAX32: Final = 0xFFFFFFFF
_LONGEST_DIRECTORY: Final = 1 << 20  # of 50 names and what may stand beside them
_LONGEST_COMMENT: Final = _MAX16
_ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13  # files, "strong", and the directory itself
_SIZES_BEHIND: Final = 1 << 3
_DOS_DIRECTORY: Final = 1 << 4


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """One file of a zip, as its headers describe it.

    Attributes:
        name: not checked.
        method: `STORED` or `DEFLATED`.
        crc: CRC-32 of the content.
        start: of its data, in the zip.
        packed: bytes of its data.
        size: bytes of its content; a claim.
    """

    name: str
    method: int
    crc: int
    start: int
    packed: int
    size: int


@dataclass(frozen=True, slots=True)
class _Central:
    """A file in the directory: what its own header must say as well, and where that is."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def read_layout(file: BinaryIO, length: int, most_files: int) -> Sequence[ZipEntry]:
    """The files of a zip, in the order of their data.

    Args:
        file: seekable.
        length: bytes of it.
        most_files: how many may be in it.

    Raises:
        BundleError: it is not laid out as it must be. Nothing else is raised, whatever the bytes.
    """
    count, size, offset = _read_end(file, length)
    if count > most_files:
        _refuse(Fault.TOO_MANY_FILES, f"it has {count} files, and {most_files} are allowed")
    if size > _LONGEST_DIRECTORY:
        _refuse(Fault.NOT_A_ZIP, f"its directory has {size} bytes for {count} files")
    listed = list(_read_directory(_read(file, offset, size), count))
    entries, due = [], 0
    for central in sorted(listed, key=lambda central: central.offset):
        _check_order(central.offset, due)
        entry = _read_entry(file, central)
        entries.append(entry)
        due = entry.start + entry.packed
    _check_order(offset, due)
    return entries


def _read_end(file: BinaryIO, length: int) -> tuple[int, int, int]:
    """How many files there are, and the size and the offset of the directory."""
    end = length - _END.size
    if end < 0:
        _refuse(Fault.NOT_A_ZIP, f"it has {length} bytes")
    signature, disk, first_disk, here, count, size, offset, comment = _END.unpack(
        _read(file, end, _END.size)
    )
    if signature != _END_SIGNATURE or comment:
        tail = min(length, _END.size + _LONGEST_COMMENT)
        if _END_SIGNATURE in _read(file, length - tail, tail):
            _refuse(Fault.TRAILING_DATA, "something follows its end")
        _refuse(Fault.NOT_A_ZIP, "it has no end of a zip")
    if _MAX16 in (disk, first_disk, here, count) or _MAX32 in (size, offset):
        _refuse(Fault.ZIP64, "its end refers to a larger one")
    if disk or first_disk or here != count:
        _refuse(Fault.UNSUPPORTED_FEATURE, "it has several volumes")
    if offset + size != end:
        before = max(0, end - _ZIP64_LOCATOR)
        if _read(file, before, len(_ZIP64_SIGNATURE)) == _ZIP64_SIGNATURE:
            _refuse(Fault.ZIP64, "it has a second end, of a larger zip")
        if offset + size > end:
            _refuse(Fault.NOT_A_ZIP, "its directory reaches beyond its end")
        _refuse(Fault.HIDDEN_DATA, "something stands before its files, or behind its directory")
    return count, size, offset


def _read_directory(directory: bytes, count: int) -> Iterator[_Central]:
    position = 0
    for _ in range(count):
        if position + _CENTRAL.size > len(directory):
            _refuse(Fault.NOT_A_ZIP, "its directory is too short")
        fields = _CENTRAL.unpack_from(directory, position)
        signature, _, _, flags, method, _, _, crc, packed, size = fields[:10]
        name_length, extra_length, comment_length, disk, _, attributes, offset = fields[10:]
        name_at = position + _CENTRAL.size
        extra_at = name_at + name_length
        position = extra_at + extra_length + comment_length
        if signature != _CENTRAL_SIGNATURE or position > len(directory):
            _refuse(Fault.NOT_A_ZIP, "its directory is damaged")
        name = directory[name_at:extra_at]
        _check_flags(name, flags, method)
        if _MAX32 in (packed, size, offset) or _has_zip64(
            directory[extra_at : extra_at + extra_length]
        ):
            _refuse(Fault.ZIP64, f"{shown(name)} has sizes of a larger zip")
        if disk:
            _refuse(Fault.UNSUPPORTED_FEATURE, f"{shown(name)} is in another volume")
        _check_kind(name, attributes)
        yield _Central(name, flags, method, crc, packed, size, offset)
    if position != len(directory):
        _refuse(Fault.HIDDEN_DATA, "its directory lists more than it counts")


def _read_entry(file: BinaryIO, central: _Central) -> ZipEntry:
    """A file by its own header, which must say what the directory says."""
    header = _read(file, central.offset, _LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != _LOCAL_SIGNATURE:
        _refuse(Fault.NOT_A_ZIP, f"{shown(central.name)} is not where the directory says")
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(header)
    name = file.read(name_length)
    extra = file.read(extra_length)
    _check_flags(central.name, flags, method)
    if _has_zip64(extra):
        _refuse(Fault.ZIP64, f"{shown(central.name)} has sizes of a larger zip")
    own = (name, flags, method, crc, packed, size)
    if own != (
        central.name, central.flags, central.method, central.crc, central.packed, central.size
    ):  # fmt: skip
        _refuse(Fault.HEADERS_DISAGREE, f"{shown(central.name)} is described in two ways")
    start = central.offset + _LOCAL.size + name_length + extra_length
    return ZipEntry(_decoded(name), method, crc, start, packed, size)


def _check_flags(name: bytes, flags: int, method: int) -> None:
    if flags & _ENCRYPTED:
        _refuse(Fault.ENCRYPTED, f"{shown(name)} is encrypted")
    if flags & _SIZES_BEHIND:
        _refuse(Fault.UNSUPPORTED_FEATURE, f"the sizes of {shown(name)} stand behind its data")
    if method not in (STORED, DEFLATED):
        _refuse(Fault.UNSUPPORTED_COMPRESSION, f"{shown(name)} is compressed by method {method}")


def _check_kind(name: bytes, attributes: int) -> None:
    """Only regular files, or entries that do not say what they are.

    The upper half is a Unix mode wherever the zip was made: some readers make a link of it then.
    """
    kind = stat.S_IFMT(attributes >> 16)
    if kind == stat.S_IFLNK:
        _refuse(Fault.SYMLINK, f"{shown(name)} is a symbolic link")
    if kind not in (0, stat.S_IFREG) or attributes & _DOS_DIRECTORY or name.endswith(b"/"):
        _refuse(Fault.NOT_A_FILE, f"{shown(name)} is not a file")


def _check_order(found: int, due: int) -> None:
    if found < due:
        _refuse(Fault.OVERLAPPING_ENTRIES, f"what is at byte {found} begins before {due}")
    if found > due:
        _refuse(Fault.HIDDEN_DATA, f"bytes {due} to {found} belong to nothing")


def _has_zip64(extra: bytes) -> bool:
    position = 0
    while position + _EXTRA.size <= len(extra):
        kind, size = _EXTRA.unpack_from(extra, position)
        if kind == _ZIP64_EXTRA:
            return True
        position += _EXTRA.size + size
    return False


def _decoded(name: bytes) -> str:
    """The name, in a way that keeps what is not ASCII visible: no such name is taken."""
    return name.decode("utf-8", errors="replace")


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _refuse(fault: Fault, why: str) -> NoReturn:
    raise BundleError(fault, f"The zip is refused ({fault}): {why}.")
