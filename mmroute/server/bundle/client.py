"""Fetches the files of a worker: a zip that its gRPC service streams, as engines do."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from mmroute.errors import Reason, quoted
from mmroute.server.bundle.files import BundleError, refused
from mmroute.server.bundle.unpack import unpack
from mmroute.text.fingerprint import fingerprint

METHODS: Final[Mapping[str, str]] = {
    service: f"/{service}/GetTokenizer"
    for service in (
        "vllm.grpc.engine.VllmEngine",
        "sglang.grpc.scheduler.SglangScheduler",
        "trtllm.TrtllmService",
        "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
        "mlx.grpc.engine.MlxEngine",
    )
}
"""Service of an engine -> its method that streams a zip, in the order in which a worker is asked.

The request has no fields. Source: smg-grpc-proto 0.4.28.
"""

MOST_STREAMED: Final = 200 << 20  # bytes in all chunks of one call, as in smg's client
_MAX_DETAILS: Final = 300  # characters: enough for cause and place in gRPC's long messages
_OPTIONS: Final = (
    # Compressing a zip gains nothing, and not every gRPC library limits what gzip inflates to.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Workers are in the router's own network, which a proxy for the web does not reach.
    ("grpc.enable_http_proxy", 0),
)


def _chunk() -> Any:
    """The class of a piece of the zip; the last one has the SHA-256 of the whole zip.

    On the wire it is smg's ``GetTokenizerChunk``. It has another name here, because a process may
    load both, and protobuf takes one definition of a name only.
    """
    file = FileDescriptorProto(name="mmroute/bundle.proto", package="mmroute", syntax="proto3")
    message = file.message_type.add(name="ZipChunk")
    message.field.add(name="data", number=1, type=FieldDescriptorProto.TYPE_BYTES)
    message.field.add(name="sha256", number=2, type=FieldDescriptorProto.TYPE_STRING)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("mmroute.ZipChunk"))


ZipChunk: Final[Any] = _chunk()


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a worker, in a directory that is removed when the bundle is closed.

    Attributes:
        worker: the worker's address.
        service: the gRPC service that sent the files.
        root: the directory, which only this user may enter.
        files: the paths of the files, by name.
        fingerprint: the digest of all names and contents.
    """

    worker: str
    service: str
    root: Path
    files: Mapping[str, Path]
    fingerprint: str
    _directory: tempfile.TemporaryDirectory[str] = field(repr=False)

    def close(self) -> None:
        """Remove the directory."""
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fetch_bundle(worker: str, *, timeout: float = 120.0) -> Bundle:
    """Fetch the tokenizer and configuration files of a worker.

    The worker is asked for the services of the engines, one after the other.

    Args:
        worker: the worker's address: ``HOST:PORT``, ``grpc://HOST:PORT`` or ``unix:PATH``.
        timeout: the seconds for connecting and streaming together.

    Raises:
        BundleError: the bundle could not be fetched, and nothing of it is kept.
        OSError: the files cannot be written.
        ValueError: `worker` has none of these forms.
    """
    until, address = time.monotonic() + timeout, grpc_address(worker)
    directory = tempfile.TemporaryDirectory(prefix="mmroute-bundle-")
    with contextlib.ExitStack() as unless_fetched:
        unless_fetched.callback(directory.cleanup)
        root = Path(directory.name)
        try:
            service, files = _fetch(address, until, root)
        except BundleError as error:
            raise BundleError(error.reason, f"{worker}: {error}") from error
        bundle = Bundle(worker, service, root, files, fingerprint(files), directory)
        unless_fetched.pop_all()
    return bundle


def _fetch(address: str, until: float, root: Path) -> tuple[str, dict[str, Path]]:
    """The first service of the worker that sends files, and the files."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        for service, method in METHODS.items():
            ask: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)
            call = ask(b"", timeout=max(0.0, until - time.monotonic()))
            try:
                with tempfile.TemporaryFile(dir=root) as spool:
                    length = receive_zip(call, spool)
                    return service, unpack(spool, length, root)
            except grpc.RpcError as error:
                details = repr((error.details() or "")[:_MAX_DETAILS])
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    said = f"The call failed: {error.code().name} {details}"
                    raise BundleError(Reason.BUNDLE_UNAVAILABLE, said) from error
            finally:
                call.cancel()  # the rest of a refused stream is not read
    raise BundleError(
        Reason.BUNDLE_UNAVAILABLE,
        f"It has none of the services that give bundles: {', '.join(METHODS)}.",
    )


def receive_zip(messages: Iterable[bytes], spool: BinaryIO) -> int:
    """Write a streamed zip to a file, and check its SHA-256, which the last message has."""
    digest, total, sha256, empty = hashlib.sha256(), 0, "", False
    for message in messages:
        try:
            chunk = ZipChunk.FromString(message)
        except DecodeError as error:
            raise refused(f"a message is no chunk of a zip: {error}") from error
        if sha256 or empty:
            raise refused("a chunk came after the SHA-256, or has no data")
        sha256, empty = chunk.sha256, not chunk.data
        total += len(chunk.data)
        if total > MOST_STREAMED:
            raise refused(f"it has at least {total} bytes, of {MOST_STREAMED}")
        digest.update(chunk.data)
        spool.write(chunk.data)
    if not total or not sha256:
        raise refused("it ended without data or without the SHA-256, and may be cut short")
    if digest.hexdigest() != sha256.lower():
        found = digest.hexdigest()
        raise refused(f"it has the SHA-256 {found}, and the worker says {quoted(sha256)}")
    return total


def grpc_address(worker: str) -> str:
    """A worker's address in gRPC's form."""
    address = worker.removeprefix("grpc://")
    if address.startswith("unix:") and len(address) > len("unix:"):
        return address
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdecimal()) or "/" in address:
        raise ValueError(
            f"a worker's address must be HOST:PORT, grpc://HOST:PORT or unix:PATH, found {worker!r}"
        )
    return address
