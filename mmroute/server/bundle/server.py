"""Sends a model's files to routers as a zip, by the services of the engines."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from mmroute.model_directory import ModelFiles
from mmroute.server.bundle.files import files_of
from mmroute.server.bundle.messages import METHOD, SERVICES, ZipChunk
from mmroute.text.fingerprint import fingerprint, sha256_of

_CHUNK: Final = 64 << 10  # bytes, as in the engines' servers
_MAX_STREAMS: Final = 16  # at once; each occupies a thread, and further ones are refused
_LONGEST_STREAM: Final = 300.0  # seconds; a client that does not read must not occupy a thread
_OPTIONS: Final = (("grpc.so_reuseport", 0),)  # a second server on one port must fail to start


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A zip of a model's files, as they were when the server was started."""

    files: Sequence[str]
    fingerprint: str  # of names and contents; see `mmroute.text.fingerprint`
    zip: Path
    sha256: str  # of the zip, in hexadecimal


def take_snapshot(files: Mapping[str, Path], into: Path) -> Snapshot:
    """Zip copies of files in an empty directory."""
    archive = into / ".zip"  # no file of a bundle has this name
    copies = {name: Path(shutil.copyfile(files[name], into / name)) for name in sorted(files)}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as out:
        for name, path in copies.items():
            out.write(path, name)
    return Snapshot([*copies], fingerprint(copies), archive, sha256_of(archive))


def create_server(snapshot: Snapshot, *, longest_stream: float = _LONGEST_STREAM) -> grpc.Server:
    """A server that has no port yet and is not started."""
    server = grpc.server(
        ThreadPoolExecutor(_MAX_STREAMS), options=_OPTIONS, maximum_concurrent_rpcs=_MAX_STREAMS
    )

    def stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[Any]:
        # Clients may set no deadline.
        timer = threading.Timer(longest_stream, context.cancel)
        timer.daemon = True
        if context.add_callback(timer.cancel):
            timer.start()
        with snapshot.zip.open("rb") as file:
            chunk = file.read(_CHUNK)
            while chunk:
                following = file.read(_CHUNK)
                yield ZipChunk(data=chunk, sha256="" if following else snapshot.sha256)
                chunk = following

    handler: Any = grpc.unary_stream_rpc_method_handler(
        stream, response_serializer=ZipChunk.SerializeToString
    )
    server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(service, {METHOD: handler}) for service in SERVICES
    ])  # fmt: skip
    return server


def serve(
    model: ModelFiles, address: str, started: Callable[[str, Snapshot], None], grace: float = 30.0
) -> None:
    """Serve a model's files until SIGTERM or SIGINT. Must be called in the main thread."""
    files, stopping = files_of(model), threading.Event()
    with tempfile.TemporaryDirectory(prefix="mmroute-bundle-") as directory:
        snapshot = take_snapshot(files, Path(directory))
        server = create_server(snapshot)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        server.start()
        if not address.startswith("unix:"):
            address = f"{address.rpartition(':')[0]}:{port}"
        started(address, snapshot)
        stopping.wait()
        server.stop(grace).wait()
