"""Fetches the files of a worker: a zip that its gRPC service streams, as engines do."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from mmroute.errors import quoted
from mmroute.server.bundle.bundle_pb2 import ZipChunk
from mmroute.server.bundle.faults import BundleError, Fault
from mmroute.server.bundle.files import Limits
from mmroute.server.bundle.unpack import unpack
from mmroute.text.fingerprint import fingerprint

SERVICES: Final = (
    "vllm.grpc.engine.VllmEngine",
    "sglang.grpc.scheduler.SglangScheduler",
    "trtllm.TrtllmService",
    "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
    "mlx.grpc.engine.MlxEngine",
)
"""The engines' services, which stream a zip, as they are asked. Source: smg-grpc-proto 0.4.28."""

_MAX_DETAILS: Final = 300  # characters: enough for cause and place in gRPC's long messages
_REQUEST: Final = b""  # GetTokenizerRequest has no fields
_OPTIONS: Final = (
    # Compressing a zip gains nothing, and not every gRPC library limits what gzip inflates to.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Workers are in the router's own network, which a proxy for the web does not reach.
    ("grpc.enable_http_proxy", 0),
)

_Progress: TypeAlias = Callable[[int], object] | None


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


def fetch_bundle(
    worker: str,
    *,
    timeout: float = 120.0,
    limits: Limits | None = None,
    progress: _Progress = None,
) -> Bundle:
    """Fetch the tokenizer and configuration files of a worker.

    The worker is asked for the services of the engines, one after the other.

    Args:
        worker: the worker's address: ``HOST:PORT``, ``grpc://HOST:PORT`` or ``unix:PATH``.
        timeout: the seconds for connecting and streaming together.
        limits: the limits for number and size of the files; None for the default ones.
        progress: the function to call after each message, with the bytes received so far.

    Raises:
        BundleError: the bundle could not be fetched, and nothing of it is kept; `fault` says why.
        OSError: the files cannot be written.
        ValueError: `worker` has none of these forms.
    """
    until, address = time.monotonic() + timeout, grpc_address(worker)
    directory = tempfile.TemporaryDirectory(prefix="mmroute-bundle-")
    with contextlib.ExitStack() as unless_fetched:
        unless_fetched.callback(directory.cleanup)
        root = Path(directory.name)
        try:
            service, files = _fetch(address, until, root, limits or Limits(), progress)
        except BundleError as error:
            raise BundleError(error.fault, f"{worker}: {error}") from error
        bundle = Bundle(worker, service, root, files, fingerprint(files), directory)
        unless_fetched.pop_all()
    return bundle


def _fetch(
    address: str, until: float, root: Path, limits: Limits, progress: _Progress
) -> tuple[str, dict[str, Path]]:
    """The first service of the worker that sends files, and the files."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        for service in SERVICES:
            ask: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method(service))
            call = ask(_REQUEST, timeout=max(0.0, until - time.monotonic()))
            try:
                with tempfile.TemporaryFile(dir=root) as spool:
                    length = receive_zip(_messages(call, progress), spool, limits)
                    return service, unpack(spool, length, root, limits)
            except _NotOfferedError:
                continue
            finally:
                call.cancel()  # the rest of a refused stream is not read
    raise BundleError(
        Fault.NOT_OFFERED,
        f"It has none of the services that give bundles: {', '.join(SERVICES)}.",
    )


def receive_zip(messages: Iterable[bytes], spool: BinaryIO, limits: Limits) -> int:
    """Write a streamed zip to a file, and check its SHA-256, which the last message has."""
    digest, total, sha256, empty = hashlib.sha256(), 0, "", False
    for message in messages:
        chunk = ZipChunk()
        try:
            chunk.ParseFromString(message)
        except DecodeError as error:
            raise _malformed(f"a message is no chunk of a zip: {error}") from error
        if sha256 or empty:
            raise _malformed("a chunk came after the SHA-256, or has no data")
        sha256, empty = chunk.sha256, not chunk.data
        total += len(chunk.data)
        if total > limits.stream_bytes:
            raise BundleError(
                Fault.TOO_LARGE,
                f"The bundle has at least {total} bytes, and {limits.stream_bytes} are allowed.",
            )
        digest.update(chunk.data)
        spool.write(chunk.data)
    if not total or not sha256:
        raise _malformed("it ended without data or without the SHA-256, and may be cut short")
    if digest.hexdigest() != sha256.lower():
        raise BundleError(
            Fault.SHA256_MISMATCH,
            f"The zip has the SHA-256 {digest.hexdigest()}, the worker says {quoted(sha256)}.",
        )
    return total


def _malformed(why: str) -> BundleError:
    return BundleError(Fault.MALFORMED_STREAM, f"The stream is refused: {why}.")


class _NotOfferedError(Exception):
    """The worker does not have this service."""


def _messages(call: Iterable[bytes], progress: _Progress) -> Iterator[bytes]:
    """The serialized messages of a call of `GetTokenizer`."""
    begun, received = False, 0
    try:
        for message in call:
            begun, received = True, received + len(message)
            yield message
            if progress is not None:
                progress(received)
    except grpc.RpcError as error:
        raise _meaning_of(error, begun=begun) from error


def _meaning_of(error: grpc.RpcError, *, begun: bool) -> Exception:
    """The error by which a failed call is reported."""
    code, details = error.code(), repr((error.details() or "")[:_MAX_DETAILS])
    if code is grpc.StatusCode.UNIMPLEMENTED and not begun:
        return _NotOfferedError()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return BundleError(Fault.DEADLINE_EXCEEDED, "The bundle did not come in time.")
    if begun:
        return BundleError(Fault.STREAM_BROKEN, f"The stream broke off: {code.name} {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return BundleError(Fault.UNREACHABLE, f"Nobody answers: {details}")
    return BundleError(Fault.WORKER_REFUSED, f"The worker refuses: {code.name} {details}")


def method(service: str) -> str:
    """The path of a service's `GetTokenizer`."""
    return f"/{service}/GetTokenizer"


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
