"""The files of a zip onto the disk, with every byte counted."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from mmroute.bundle.faults import BundleError, Fault
from mmroute.bundle.files import Limits, check_names
from mmroute.bundle.zip_layout import STORED, ZipEntry, read_layout

__all__ = ["create", "unpack"]

_BLOCK: Final = 64 << 10
_RATIO_FROM: Final = 1 << 20  # small files repeat themselves more than large ones
_RAW: Final = -zlib.MAX_WBITS


def unpack(file: BinaryIO, length: int, into: Path, limits: Limits) -> dict[str, Path]:
    """Unpack a zip into an empty directory.

    Args:
        file: the zip, seekable.
        length: bytes of it.
        into: an empty directory that nobody else writes to.
        limits: of number and size of the files.

    Returns:
        The files by name.

    Raises:
        BundleError: the zip is refused. What was written stays: remove the directory.
    """
    entries = read_layout(file, length, limits.files)
    check_names((entry.name for entry in entries), limits)
    claimed = sum(entry.size for entry in entries)
    if claimed > limits.unpacked_bytes:
        raise BundleError(
            Fault.UNPACKED_TOO_LARGE,
            f"The bundle's files have {claimed} bytes, {limits.unpacked_bytes} are allowed.",
        )
    files = {}
    for entry in entries:
        files[entry.name] = into / entry.name
        with create(files[entry.name]) as out:
            _write(file, entry, out, limits)
    return files


def create(path: Path) -> BinaryIO:
    """A new file that only its owner may read; nothing that is there already is opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _write(file: BinaryIO, entry: ZipEntry, out: BinaryIO, limits: Limits) -> None:
    """Write one file. Its size is at most what was claimed, and with it the sum of all sizes."""
    file.seek(entry.start)
    content = _stored(file, entry) if entry.method == STORED else _inflated(file, entry)
    written, crc = 0, 0
    for block in content:
        written += len(block)
        crc = zlib.crc32(block, crc)
        if written > entry.size:
            _refuse(Fault.SIZE_MISMATCH, entry, f"it has more than the {entry.size} bytes claimed")
        if written > max(_RATIO_FROM, entry.packed * limits.ratio):
            _refuse(Fault.RATIO_TOO_HIGH, entry, f"{entry.packed} bytes are inflated to more "
                    f"than {limits.ratio} times as many")  # fmt: skip
        out.write(block)
    if written < entry.size:
        _refuse(Fault.SIZE_MISMATCH, entry, f"it has {written} bytes, and {entry.size} are claimed")
    if crc != entry.crc:
        _refuse(Fault.CORRUPT_DATA, entry, "its checksum is another one")


def _stored(file: BinaryIO, entry: ZipEntry) -> Iterator[bytes]:
    left = entry.packed
    while block := file.read(min(_BLOCK, left)):
        left -= len(block)
        yield block


def _inflated(file: BinaryIO, entry: ZipEntry) -> Iterator[bytes]:
    """The content, in blocks that are small whatever they are inflated from."""
    inflate = zlib.decompressobj(_RAW)
    left = entry.packed
    while not inflate.eof:
        packed = inflate.unconsumed_tail
        if not packed:
            packed = file.read(min(_BLOCK, left))
            left -= len(packed)
        try:
            block = inflate.decompress(packed, _BLOCK)
        except zlib.error as error:
            _refuse(Fault.CORRUPT_DATA, entry, str(error))
        if not (block or packed or inflate.eof):
            _refuse(Fault.CORRUPT_DATA, entry, "its data ends too early")
        yield block
    if left or inflate.unused_data:
        _refuse(Fault.HIDDEN_DATA, entry, "something stands behind its data")


def _refuse(fault: Fault, entry: ZipEntry, why: str) -> NoReturn:
    raise BundleError(fault, f"{entry.name} in the bundle is refused ({fault}): {why}.")
