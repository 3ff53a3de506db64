"""Sends a model's files to routers as a zip, by the services of the engines."""

from __future__ import annotations

import signal
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc

from mmroute.server.bundle.client import METHODS, ZipChunk
from mmroute.text.fingerprint import sha256_of

_CHUNK: Final = 64 << 10  # bytes, as in the engines' servers
_MAX_STREAMS: Final = 16  # at once; each occupies a thread, and further ones are refused
_LONGEST_STREAM: Final = 300.0  # seconds; a client that does not read must not occupy a thread
_GRACE: Final = 30.0  # seconds for streams that run when the server is told to stop
_OPTIONS: Final = (("grpc.so_reuseport", 0),)  # a second server on one port must fail to start


def create_server(
    files: Mapping[str, Path], archive: Path, *, longest_stream: float = _LONGEST_STREAM
) -> grpc.Server:
    """A server, without a port and not started, of files as they are now: zipped at `archive`."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as out:
        for name in sorted(files):
            out.write(files[name], name)
    sha256 = sha256_of(archive)

    def stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[Any]:
        # Clients may set no deadline.
        timer = threading.Timer(longest_stream, context.cancel)
        timer.daemon = True
        if context.add_callback(timer.cancel):
            timer.start()
        with archive.open("rb") as file:
            chunk = file.read(_CHUNK)
            while chunk:
                following = file.read(_CHUNK)
                yield ZipChunk(data=chunk, sha256="" if following else sha256)
                chunk = following

    handler: Any = grpc.unary_stream_rpc_method_handler(
        stream, response_serializer=ZipChunk.SerializeToString
    )
    server = grpc.server(
        ThreadPoolExecutor(_MAX_STREAMS), options=_OPTIONS, maximum_concurrent_rpcs=_MAX_STREAMS
    )
    server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(service, {method.rpartition("/")[2]: handler})
        for service, method in METHODS.items()
    ])  # fmt: skip
    return server


def serve(files: Mapping[str, Path], address: str, started: Callable[[str], None]) -> None:
    """Serve files until SIGTERM or SIGINT. Must be called in the main thread."""
    stopping = threading.Event()
    with tempfile.TemporaryDirectory(prefix="mmroute-bundle-") as directory:
        server = create_server(files, Path(directory, "zip"))
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        server.start()
        if not address.startswith("unix:"):
            address = f"{address.rpartition(':')[0]}:{port}"
        started(address)
        stopping.wait()
        server.stop(_GRACE).wait()
