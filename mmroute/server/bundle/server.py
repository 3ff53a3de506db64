"""Sends a model's files to routers: as a zip, as engines do, and file by file."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from mmroute.model_directory import ModelFiles
from mmroute.server.bundle.archive import Snapshot, take_snapshot
from mmroute.server.bundle.bundle_pb2 import (
    GetTokenizerRequest,
    TokenizerChunk,
    TokenizerFileChunk,
    TokenizerFileDescriptor,
    TokenizerMetadata,
    ZipChunk,
)
from mmroute.server.bundle.faults import BundleError, Fault
from mmroute.server.bundle.files import Limits, check_flat, check_names, files_of
from mmroute.server.bundle.services import ENGINE_SERVICES, FILES_SERVICE
from mmroute.server.bundle.streams import FILES_FORMAT

_CHUNK: Final = 64 << 10  # bytes, as in the engines' servers
_MAX_STREAMS: Final = 16  # at once; each occupies a thread, and further ones are refused
_LONGEST_STREAM: Final = 300.0  # seconds; a client that does not read must not occupy a thread
_OPTIONS: Final = (("grpc.so_reuseport", 0),)  # a second server on one port must fail to start

_Context: TypeAlias = grpc.ServicerContext


def create_server(
    model: str, snapshot: Snapshot, *, longest_stream: float = _LONGEST_STREAM
) -> grpc.Server:
    """A server that has no port yet and is not started."""
    server = grpc.server(
        ThreadPoolExecutor(_MAX_STREAMS), options=_OPTIONS, maximum_concurrent_rpcs=_MAX_STREAMS
    )

    def zipped(_request: GetTokenizerRequest, context: _Context) -> Iterator[ZipChunk]:
        _end_after(longest_stream, context)
        for data, last in _chunks(snapshot.zip):
            yield ZipChunk(data=data, sha256=snapshot.sha256 if last else "")

    def plain(_request: GetTokenizerRequest, context: _Context) -> Iterator[TokenizerChunk]:
        _end_after(longest_stream, context)
        return _file_chunks(model, snapshot)

    server.add_generic_rpc_handlers(
        (
            *(_handler(service, zipped, ZipChunk) for service in ENGINE_SERVICES),
            _handler(FILES_SERVICE, plain, TokenizerChunk),
        )
    )
    return server


def serve(
    model: ModelFiles, address: str, started: Callable[[str, Snapshot], None], grace: float = 30.0
) -> None:
    """Serve a model's files until SIGTERM or SIGINT. Must be called in the main thread."""
    if address.startswith("unix:"):
        directory_of_socket = Path(address.removeprefix("unix:")).parent
        if not directory_of_socket.is_dir():
            raise OSError(
                f"cannot listen on {address}: there is no directory {directory_of_socket}"
            )
    check_flat(model)
    files = files_of(model)
    check_names(files, limits := Limits())
    size = sum(path.stat().st_size for path in files.values())
    if size > limits.stream_bytes:
        raise BundleError(
            Fault.STREAM_TOO_LARGE,
            f"{model.name}: its files have {size} bytes, and a bundle may have "
            f"{limits.stream_bytes}.",
        )
    with tempfile.TemporaryDirectory(prefix="mmroute-bundle-") as directory:
        snapshot = take_snapshot(files, Path(directory))
        server = create_server(model.name, snapshot)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        stopping = threading.Event()
        before = {
            number: signal.signal(number, lambda *_: stopping.set())
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            server.start()
            if not address.startswith("unix:"):
                address = f"{address.rpartition(':')[0]}:{port}"
            started(address, snapshot)
            stopping.wait()
        finally:
            server.stop(grace).wait()
            for number, handler in before.items():
                signal.signal(number, handler)


def _handler(
    service: str, answer: Callable[[Any, _Context], Iterator[Any]], kind: type[Any]
) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        service,
        {
            "GetTokenizer": grpc.unary_stream_rpc_method_handler(
                answer,
                request_deserializer=GetTokenizerRequest.FromString,
                response_serializer=kind.SerializeToString,
            )
        },
    )


def _end_after(seconds: float, context: _Context) -> None:
    """Abort a call that is not over after so many seconds, because clients may set no deadline."""
    timer = threading.Timer(seconds, context.cancel)
    timer.daemon = True
    if context.add_callback(timer.cancel):
        timer.start()


def _file_chunks(model: str, snapshot: Snapshot) -> Iterator[TokenizerChunk]:
    described = [
        TokenizerFileDescriptor(file_name=name, size=path.stat().st_size)
        for name, path in snapshot.files.items()
    ]
    metadata = TokenizerMetadata(
        model_identifier=model,
        fingerprint=snapshot.fingerprint,
        files=described,
        bundle_format=FILES_FORMAT,
    )
    yield TokenizerChunk(metadata=metadata)
    for name, path in snapshot.files.items():
        for index, (data, last) in enumerate(_chunks(path)):
            chunk = TokenizerFileChunk(
                file_name=name, data=data, chunk_index=index, is_last_chunk=last
            )
            yield TokenizerChunk(file_chunk=chunk)


def _chunks(path: Path) -> Iterator[tuple[bytes, bool]]:
    """The chunks of a file, each with a flag for the last one. An empty file has one chunk."""
    with path.open("rb") as file:
        chunk = file.read(_CHUNK)
        while True:
            following = file.read(_CHUNK)
            yield chunk, not following
            if not following:
                return
            chunk = following
