"""The largest bundle that is taken: it needs little memory, and one byte more is refused."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle_helpers import (
    VLLM,
    Entry,
    worker,
    zip_of,
)

from mmroute.server.bundle import BundleError
from mmroute.server.bundle.client import MOST_STREAMED, ZipChunk, receive_zip


def chunk(data: bytes, sha256: str = "") -> bytes:
    message: bytes = ZipChunk(data=data, sha256=sha256).SerializeToString()
    return message


# On Linux a process inherits the peak of who started it: that must be nobody large.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))"


MEASURE = """
import json, resource, sys
from mmroute.server.bundle import fetch_bundle
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB; bytes on macOS
before = peak()
with fetch_bundle(sys.argv[1]) as bundle:
    size = sum(path.stat().st_size for path in bundle.files.values())
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({"size": size, "grown": (peak() - before) * unit}))
"""


def largest_zip() -> Iterator[bytes]:
    """The largest zip that is taken, to the byte: one stored file of zeros."""
    head = len(zip_of(Entry(b"big.model", b"", method=0)))
    size = MOST_STREAMED - head
    block = bytes(1 << 20)
    crc = 0
    for start in range(0, size, len(block)):
        crc = zlib.crc32(block[: size - start], crc)
    fields = {"crc": crc, "packed": size, "size": size}
    frame = zip_of(Entry(b"big.model", b"", method=0, local=fields, central=fields),
                   end={"offset": 39 + size})  # fmt: skip
    yield frame[:39]
    yield from itertools.repeat(block, size // len(block))
    yield block[: size % len(block)]
    yield frame[39:]


def largest_zip_messages() -> Iterator[bytes]:
    digest, total = hashlib.sha256(), 0
    for block in largest_zip():
        digest.update(block)
        total += len(block)
        yield chunk(block, digest.hexdigest() if total == MOST_STREAMED else "")


@pytest.mark.process
def test_memory_is_bounded_for_the_largest_bundle(tmp_path: Path) -> None:
    with worker({VLLM: lambda _: largest_zip_messages()}) as address:
        result = subprocess.run(
            [sys.executable, "-c", BETWEEN, "-c", MEASURE, address],
            capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": str(tmp_path)},
        )  # fmt: skip
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    assert measured["size"] > MOST_STREAMED - 200
    assert measured["grown"] < MOST_STREAMED // 2
    assert list(tmp_path.iterdir()) == []


def test_one_byte_more_is_refused() -> None:
    def one_more() -> Iterator[bytes]:
        first = True
        for block in largest_zip():
            yield chunk(b"x" + block if first else block)
            first = False

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    with pytest.raises(BundleError, match=r"at least \d+ bytes"):
        receive_zip(one_more(), Nowhere())  # type: ignore[arg-type]  # it only writes
