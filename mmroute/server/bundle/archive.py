"""The snapshot that a server sends: copies of the files, and a zip of them."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mmroute.tokenizers.fingerprint import fingerprint, sha256_of

_ZIP: Final = ".zip"  # no file of a bundle has this name
_UNIX: Final = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of a model's files, made when the server was started.

    An engine, too, reads its files only when it starts.

    Attributes:
        files: the copies, sorted by name.
        fingerprint: the digest of names and contents; see `mmroute.tokenizers.fingerprint`.
        zip: the zip of all files.
        sha256: the SHA-256 digest of the zip, in hexadecimal.
    """

    files: Mapping[str, Path]
    fingerprint: str
    zip: Path
    sha256: str


def take_snapshot(files: Mapping[str, Path], into: Path) -> Snapshot:
    """Copy files into an empty directory, and zip them.

    Equal files give equal zips if the same zlib deflates them: a zip has no times and no owners,
    and its files are in one order. (The zips of the engines' servers have the times of the files,
    so their SHA-256 does not show whether two workers hold the same files. The fingerprint does.)
    """
    copies = {}
    for name in sorted(files):
        copies[name] = Path(shutil.copyfile(files[name], into / name))
    archive = into / _ZIP
    with zipfile.ZipFile(archive, "w") as out:
        for name, path in copies.items():
            entry = zipfile.ZipInfo(name)  # its time is 1980-01-01
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = _UNIX
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.file_size = path.stat().st_size
            with path.open("rb") as content, out.open(entry, "w") as packed:
                shutil.copyfileobj(content, packed, 1 << 20)
    return Snapshot(copies, fingerprint(copies), archive, sha256_of(archive))
