"""Unpacks the zip of a bundle, with a limit on everything that a worker could make large.

`zipfile` reads the zip by its central directory. Bytes that the directory does not mention are not
read. The size and method in a file's local header are ignored.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from mmroute.errors import quoted
from mmroute.server.bundle.faults import BundleError, Fault
from mmroute.server.bundle.files import Limits, check_names

_BLOCK: Final = 64 << 10
_RATIO_FROM: Final = 1 << 20  # bytes; smaller files may have any ratio, as they do no harm
_END: Final = struct.Struct("<4s4H2LH")
"""The end of central directory record. Source: APPNOTE.TXT 6.3.10, section 4.3.16."""
_ZIP64_LOCATOR: Final = 20
_LARGEST_DIRECTORY: Final = 1 << 20  # bytes, for 50 names and their attributes
_ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13  # files, "strong", and the directory itself
_DOS_DIRECTORY: Final = 1 << 4
_DAMAGED: Final = (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, OverflowError)
"""The errors of `zipfile` for a file that is not a zip, is damaged, or cannot be read."""


def unpack(file: BinaryIO, length: int, into: Path, limits: Limits) -> dict[str, Path]:
    """Unpack a zip into an empty directory."""
    count = _check_end(file, length, limits)
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED as error:
        _refuse(Fault.NOT_A_ZIP, str(error))
    with archive:
        entries = archive.infolist()
        if len(entries) != count:
            _refuse(Fault.NOT_A_ZIP, f"{len(entries)} files are listed and {count} are counted")
        for entry in entries:
            _check_kind(entry)
        # zipfile cuts `filename` off at a NUL, but not `orig_filename`.
        files = {entry.orig_filename: into / entry.orig_filename for entry in entries}
        check_names((entry.orig_filename for entry in entries), limits)
        _check_sizes(entries, length, limits)
        for entry in entries:
            with _create(files[entry.orig_filename]) as out:
                _write(archive, entry, out)
    return files


def _create(path: Path) -> BinaryIO:
    """Create a file that only its owner may read; fail if the path exists, also as a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _check_end(file: BinaryIO, length: int, limits: Limits) -> int:
    """The number of files in the central directory, which is checked before `zipfile` reads it."""
    end = length - _END.size
    if end < 0:
        _refuse(Fault.NOT_A_ZIP, f"it has {length} bytes")
    file.seek(max(0, end - _ZIP64_LOCATOR))
    if end >= _ZIP64_LOCATOR and file.read(_ZIP64_LOCATOR).startswith(b"PK\x06\x07"):
        _refuse(Fault.NOT_A_ZIP, "it is a zip64, which no bundle needs")
    file.seek(end)
    signature, _, _, _, count, size, offset, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\x05\x06" or comment or offset + size != end:
        _refuse(Fault.NOT_A_ZIP, "it does not end with its central directory")
    if count > limits.files:
        _refuse(Fault.TOO_LARGE, f"it has {count} files, {limits.files} are allowed")
    if size > _LARGEST_DIRECTORY:
        _refuse(Fault.NOT_A_ZIP, f"its central directory has {size} bytes")
    return int(count)


def _check_sizes(entries: list[zipfile.ZipInfo], length: int, limits: Limits) -> None:
    """Check the sizes in the central directory. `zipfile` inflates a file up to that size only."""
    packed = sum(entry.compress_size for entry in entries)
    if packed > length or any(entry.header_offset >= length for entry in entries):
        _refuse(Fault.NOT_A_ZIP, "its files claim bytes that it does not have")
    size = sum(entry.file_size for entry in entries)
    if size > limits.unpacked_bytes:
        _refuse(Fault.TOO_LARGE, f"its files have {size} bytes, of {limits.unpacked_bytes}")
    for entry in entries:
        if entry.file_size > max(_RATIO_FROM, entry.compress_size * limits.ratio):
            why = f"{entry.compress_size} bytes claim to be more than {limits.ratio} times as many"
            _refuse(Fault.TOO_LARGE, why, entry)


def _check_kind(entry: zipfile.ZipInfo) -> None:
    """Accept only plain files, stored or deflated.

    The upper half of the attributes is read as a Unix mode, whatever system the zip names. An entry
    without a type is a file.
    """
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG) or entry.external_attr & _DOS_DIRECTORY:
        _refuse(Fault.NOT_A_FILE, "it is a link, a directory or a device", entry)
    if entry.flag_bits & _ENCRYPTED:
        _refuse(Fault.NOT_A_FILE, "it is encrypted", entry)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        _refuse(Fault.NOT_A_FILE, f"its compression is {entry.compress_type}", entry)


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, out: BinaryIO) -> None:
    written = 0
    try:
        with archive.open(entry) as content:
            while block := content.read(_BLOCK):
                written += len(block)
                out.write(block)
    except (*_DAMAGED, zlib.error) as error:
        _refuse(Fault.CORRUPT_DATA, str(error) or "its data ends too early", entry)
    if written != entry.file_size:
        why = f"it has {written} bytes, and {entry.file_size} are listed"
        _refuse(Fault.CORRUPT_DATA, why, entry)


def _refuse(fault: Fault, why: str, entry: zipfile.ZipInfo | None = None) -> NoReturn:
    what = "The zip" if entry is None else f"{quoted(entry.orig_filename)} in the bundle"
    raise BundleError(fault, f"{what} is refused ({fault}): {why}.")
