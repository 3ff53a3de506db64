"""Unpacks the zip of a bundle, with a limit on everything that a worker could make large.

`zipfile` reads the zip by its central directory. Bytes that the directory does not mention are not
read. The size and method in a file's local header are ignored.
"""

from __future__ import annotations

import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from mmroute.errors import quoted
from mmroute.server.bundle.files import check_names, refused

MOST_UNPACKED: Final = 500 << 20  # bytes of all files, as in smg's client
_END: Final = struct.Struct("<4s4H2LH")
"""The end of central directory record. Source: APPNOTE.TXT 6.3.10, section 4.3.16."""
_ZIP64_LOCATOR: Final = 20
_LARGEST_DIRECTORY: Final = 1 << 20  # bytes, for 50 names and their attributes
_ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13  # files, "strong", and the directory itself
_DOS_DIRECTORY: Final = 1 << 4
_DAMAGED: Final = (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, OverflowError)
"""The errors of `zipfile` for a file that is not a zip, is damaged, or cannot be read."""


def unpack(file: BinaryIO, length: int, into: Path) -> dict[str, Path]:
    """Unpack a zip into an empty directory that only its owner can enter."""
    _check_end(file, length)
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise refused(f"it is no zip: {error}") from error
    with archive:
        entries = archive.infolist()
        for entry in entries:
            _check_kind(entry)
        # zipfile cuts `filename` off at a NUL, but not `orig_filename`.
        files = {entry.orig_filename: into / entry.orig_filename for entry in entries}
        check_names(entry.orig_filename for entry in entries)
        size = sum(entry.file_size for entry in entries)
        if size > MOST_UNPACKED:
            raise refused(f"its files have {size} bytes, of {MOST_UNPACKED}")
        for entry in entries:
            _write(archive, entry, files[entry.orig_filename])
    return files


def _check_end(file: BinaryIO, length: int) -> None:
    """Check the size of the central directory before `zipfile` reads all of it."""
    end = length - _END.size
    if end < 0:
        raise refused(f"it has {length} bytes")
    file.seek(max(0, end - _ZIP64_LOCATOR))
    if end >= _ZIP64_LOCATOR and file.read(_ZIP64_LOCATOR).startswith(b"PK\x06\x07"):
        raise refused("it is a zip64, which no bundle needs")
    file.seek(end)
    signature, _, _, _, _, size, offset, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\x05\x06" or comment or offset + size != end:
        raise refused("it does not end with the central directory of a zip")
    if size > _LARGEST_DIRECTORY:
        raise refused(f"its central directory has {size} bytes")


def _check_kind(entry: zipfile.ZipInfo) -> None:
    """Accept only plain files, stored or deflated.

    The upper half of the attributes is read as a Unix mode, whatever system the zip names. An entry
    without a type is a file.
    """
    kind = stat.S_IFMT(entry.external_attr >> 16)
    plain = kind in (0, stat.S_IFREG) and not entry.external_attr & _DOS_DIRECTORY
    packed = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not plain or not packed or entry.flag_bits & _ENCRYPTED:
        name = quoted(entry.orig_filename)
        raise refused(f"{name} is no plain file, or is encrypted or of another compression")


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    """Inflate a file. `zipfile` inflates no more than the size in the central directory."""
    try:
        with archive.open(entry) as content, path.open("xb") as out:
            shutil.copyfileobj(content, out)
            written = out.tell()
    except (*_DAMAGED, zlib.error) as error:
        raise refused(f"{quoted(entry.orig_filename)} is damaged: {error}") from error
    if written != entry.file_size:
        why = f"it has {written} bytes, and {entry.file_size} are listed"
        raise refused(f"{quoted(entry.orig_filename)} is damaged: {why}")
