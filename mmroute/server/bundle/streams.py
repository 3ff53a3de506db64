"""Reads the messages of a worker's stream, and checks each. gRPC itself is in `client`."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from mmroute.errors import quoted
from mmroute.server.bundle.bundle_pb2 import (
    TokenizerChunk,
    TokenizerFileChunk,
    TokenizerFileDescriptor,
    TokenizerMetadata,
    ZipChunk,
)
from mmroute.server.bundle.faults import BundleError, Fault
from mmroute.server.bundle.files import Limits, check_names
from mmroute.server.bundle.unpack import create
from mmroute.tokenizers.fingerprint import fingerprint

FILES_FORMAT: Final = "files"
"""The `bundle_format` of a stream of plain files."""

_SHA256_DIGITS: Final = 64
_M = TypeVar("_M", bound=Message)


def receive_zip(messages: Iterable[bytes], spool: BinaryIO, limits: Limits) -> int:
    """Write a streamed zip to a file, and check its SHA-256."""
    digest, total, sha256, empty = hashlib.sha256(), 0, "", False
    for message in messages:
        chunk = _parsed(ZipChunk, message)
        if sha256:
            raise BundleError(
                Fault.SHA256_NOT_LAST, "A chunk of the zip came after the one with the SHA-256."
            )
        if empty:
            raise BundleError(Fault.EMPTY_CHUNK, "A chunk of the zip has no data.")
        sha256, empty = chunk.sha256, not chunk.data
        total += len(chunk.data)
        _check_total(total, limits)
        digest.update(chunk.data)
        spool.write(chunk.data)
    if not total:
        raise BundleError(Fault.EMPTY_STREAM, "The stream ended without a byte of the zip.")
    if not sha256:
        raise BundleError(
            Fault.SHA256_MISSING, "The stream ended without terminal sha256: it may be cut short."
        )
    if len(sha256) != _SHA256_DIGITS or not set(string.hexdigits).issuperset(sha256):
        raise BundleError(
            Fault.SHA256_MALFORMED,
            f"The SHA-256 must be {_SHA256_DIGITS} hexadecimal digits, found {quoted(sha256)}.",
        )
    if digest.hexdigest() != sha256.lower():
        raise BundleError(
            Fault.SHA256_MISMATCH,
            f"The zip has the SHA-256 {digest.hexdigest()}, the worker says {sha256}.",
        )
    return total


def receive_files(messages: Iterable[bytes], into: Path, limits: Limits) -> dict[str, Path]:
    """Write streamed files into an empty directory, and check their fingerprint."""
    parsed = (_parsed(TokenizerChunk, message) for message in messages)
    first = next(parsed, None)
    if first is None:
        raise BundleError(Fault.EMPTY_STREAM, "The stream ended without a message.")
    if first.WhichOneof("content") != "metadata":
        raise BundleError(Fault.METADATA_MISSING, "The first message is not the metadata.")
    metadata = first.metadata
    _check_metadata(metadata, limits)
    chunks = _file_chunks(parsed)
    files = {file.file_name: into / file.file_name for file in metadata.files}
    for file in metadata.files:
        with create(files[file.file_name]) as out:
            for data in _data_of_file(file, chunks):
                out.write(data)
    if next(chunks, None) is not None:
        raise BundleError(Fault.CHUNK_AFTER_END, "A chunk came after the last file's last one.")
    actual = fingerprint(files)
    if actual != metadata.fingerprint.lower():
        raise BundleError(
            Fault.FINGERPRINT_MISMATCH,
            f"The files have the fingerprint {actual}, the worker says "
            f"{quoted(metadata.fingerprint)}.",
        )
    return files


def _file_chunks(messages: Iterator[TokenizerChunk]) -> Iterator[TokenizerFileChunk]:
    """The chunks of files; no other messages may follow the metadata."""
    for message in messages:
        kind = message.WhichOneof("content")
        if kind == "metadata":
            raise BundleError(Fault.METADATA_REPEATED, "The metadata came a second time.")
        if kind is None:
            raise BundleError(Fault.MALFORMED_MESSAGE, "A message is neither metadata nor a chunk.")
        yield message.file_chunk


def _check_metadata(metadata: TokenizerMetadata, limits: Limits) -> None:
    if metadata.bundle_format != FILES_FORMAT:
        raise BundleError(
            Fault.UNKNOWN_FORMAT,
            f"The bundle's format must be {FILES_FORMAT!r}, found "
            f"{quoted(metadata.bundle_format)}.",
        )
    check_names((file.file_name for file in metadata.files), limits)
    _check_total(sum(file.size for file in metadata.files), limits)


def _data_of_file(
    file: TokenizerFileDescriptor, chunks: Iterator[TokenizerFileChunk]
) -> Iterator[bytes]:
    """The data of one file, read from `chunks` up to the file's last chunk."""
    name, size = file.file_name, 0
    for index, chunk in enumerate(chunks):
        if chunk.file_name != name:
            raise BundleError(
                Fault.FILE_OUT_OF_ORDER,
                f"The next chunk must be of {name}, found one of {quoted(chunk.file_name)}.",
            )
        if chunk.chunk_index != index:
            raise BundleError(
                Fault.INDEX_GAP,
                f"The next chunk of {name} must be {index}, found chunk {chunk.chunk_index}.",
            )
        if not chunk.data and not (chunk.is_last_chunk and file.size == 0):
            raise BundleError(Fault.EMPTY_CHUNK, f"Chunk {index} of {name} has no data.")
        size += len(chunk.data)
        if size > file.size or (chunk.is_last_chunk and size < file.size):
            raise BundleError(
                Fault.SIZE_MISMATCH,
                f"{name} has {size} bytes at chunk {index}, and the metadata says {file.size}.",
            )
        yield chunk.data
        if chunk.is_last_chunk:
            return
    raise BundleError(
        Fault.LAST_CHUNK_MISSING, f"The stream ended before the last chunk of {name}."
    )


def _check_total(total: int, limits: Limits) -> None:
    if total > limits.stream_bytes:
        raise BundleError(
            Fault.STREAM_TOO_LARGE,
            f"The bundle has at least {total} bytes, and {limits.stream_bytes} are allowed.",
        )


def _parsed(kind: type[_M], message: bytes) -> _M:
    parsed = kind()
    try:
        parsed.ParseFromString(message)
    except DecodeError as error:
        raise BundleError(
            Fault.MALFORMED_MESSAGE, f"A message is not a {kind.__name__}: {error}"
        ) from error
    return parsed
