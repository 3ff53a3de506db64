"""What the tests of bundles share: zips that `zipfile` does not write, workers that misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import huggingface_hub
import pytest

from mmroute.server.bundle.client import METHODS, ZipChunk
from mmroute.server.bundle.server import create_server

VLLM = next(iter(METHODS))
REGULAR = 0o100644 << 16


@dataclass(frozen=True)
class Entry:
    """One file of a zip, whose headers may say anything.

    `local` and `central` override fields of the two headers.
    """

    name: bytes = b"tokenizer.json"
    content: bytes = b"{}"
    method: int = 8
    packed: bytes | None = None
    attributes: int = REGULAR
    extra: bytes = b""
    before: bytes = b""
    local: Mapping[str, Any] = field(default_factory=dict)
    central: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> bytes:
        if self.packed is not None:
            return self.packed
        return deflated(self.content) if self.method == 8 else self.content

    def fields(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "flags": 0,
            "method": self.method,
            "crc": zlib.crc32(self.content),
            "packed": len(self.data()),
            "size": len(self.content),
        }


def deflated(content: bytes) -> bytes:
    compress = zlib.compressobj(wbits=-15)
    return compress.compress(content) + compress.flush()


def zip_of(
    *entries: Entry,
    prefix: bytes = b"",
    before_directory: bytes = b"",
    before_end: bytes = b"",
    suffix: bytes = b"",
    comment: bytes = b"",
    end: Mapping[str, int] | None = None,
) -> bytes:
    """A zip, laid out by hand."""
    out, directory = bytearray(prefix), bytearray()
    for entry in entries:
        out += entry.before
        offset, same = len(out), entry.fields()
        own = same | dict(entry.local)
        out += struct.pack(
            "<4s5H3L2H", b"PK\x03\x04", 20, own["flags"], own["method"], 0, 33, own["crc"],
            own["packed"], own["size"], len(own["name"]), len(entry.extra),
        )  # fmt: skip
        out += own["name"] + entry.extra + entry.data()
        listed = same | {"offset": offset, "disk": 0, "extra": b""} | dict(entry.central)
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 3 << 8 | 20, 20, listed["flags"], listed["method"], 0, 33,
            listed["crc"], listed["packed"], listed["size"], len(listed["name"]),
            len(listed["extra"]), 0, listed["disk"], 0, entry.attributes, listed["offset"],
        )  # fmt: skip
        directory += listed["name"] + listed["extra"]
    out += before_directory
    last = {
        "disk": 0, "first_disk": 0, "here": len(entries), "count": len(entries),
        "size": len(directory), "offset": len(out),
    } | dict(end or {})  # fmt: skip
    out += directory + before_end
    return bytes(
        out
        + struct.pack("<4s4H2LH", b"PK\x05\x06", *last.values(), len(comment))
        + comment
        + suffix
    )


def zip_messages(archive: bytes, size: int = 64 << 10) -> list[bytes]:
    """A zip as engines stream it."""
    sha256 = hashlib.sha256(archive).hexdigest()
    starts = range(0, len(archive), size)
    return [
        ZipChunk(
            data=archive[start : start + size], sha256=sha256 if start == starts[-1] else ""
        ).SerializeToString()
        for start in starts
    ]


Answer = Callable[[grpc.ServicerContext], Iterable[bytes]]


@contextlib.contextmanager
def worker(answers: Mapping[str, Answer]) -> Iterator[str]:
    """The address of a server that streams what it is told to, by service."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])

    def handler(answer: Answer) -> Any:
        def respond(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield from answer(context)

        return grpc.unary_stream_rpc_method_handler(respond)

    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(service, {"GetTokenizer": handler(answer)})
            for service, answer in answers.items()
        ]
    )
    with _started(server) as address:
        yield address


@contextlib.contextmanager
def _started(server: grpc.Server) -> Iterator[str]:
    """The address of a server while it runs."""
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def zip_worker(messages: Sequence[bytes], service: str = VLLM) -> Iterator[str]:
    """An engine whose stream is this."""
    with worker({service: lambda _: messages}) as address:
        yield address


@contextlib.contextmanager
def serving(files: Mapping[str, bytes], directory: Path) -> Iterator[str]:
    """The address of mmroute's own server of these files."""
    directory.mkdir()
    paths = {name: directory / name for name in files}
    for name, content in files.items():
        paths[name].write_bytes(content)
    with _started(create_server(paths, directory / "zip")) as address:
        yield address


def hub(monkeypatch: pytest.MonkeyPatch, snapshot: Path) -> list[str]:
    """What the hub is asked for, by pattern; this directory is its answer for every name."""
    asked: list[str] = []

    def download(_name: str, *, allow_patterns: list[str], **_: object) -> str:
        asked.extend(allow_patterns)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked
