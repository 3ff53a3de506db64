"""One string for the content of a set of files, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path


def fingerprint(files: Mapping[str, Path]) -> str:
    """SHA-256, in hex, over names and contents.

    For each name in sorted order: the length of its UTF-8 form as 4 bytes, little-endian; that
    form; the SHA-256 digest of the file's content.

    Args:
        files: name -> where its content is. Only the names count, not the paths.

    Raises:
        OSError: a file cannot be read.
    """
    whole = hashlib.sha256()
    for name in sorted(files):
        encoded = name.encode()
        whole.update(len(encoded).to_bytes(4, "little"))
        whole.update(encoded)
        with files[name].open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()
