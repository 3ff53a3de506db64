"""The faults of a bundle, by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mmroute.errors import MmrouteError, Reason

__all__ = ["BundleError", "Fault"]


class Fault(StrEnum):
    """Why there is no bundle. The values are stable: routers may branch on them.

    The first group is about the call, and may pass when it is made again. The others say that the
    worker sent what may not be used: about the stream, the zip, the names in it, the contents.
    """

    UNREACHABLE = "unreachable"
    """Nobody answers at the worker's address."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    """Connecting and streaming took longer than they may together."""
    NOT_OFFERED = "not_offered"
    """The worker answers, and has none of the services that give bundles."""
    WORKER_REFUSED = "worker_refused"
    """The worker answered with an error instead of a stream."""
    STREAM_BROKEN = "stream_broken"
    """The stream ended with an error after it had begun."""

    MALFORMED_MESSAGE = "malformed_message"
    """A message is not of the protocol."""
    EMPTY_STREAM = "empty_stream"
    """The stream ended without a message, or without a byte of the zip."""
    EMPTY_CHUNK = "empty_chunk"
    """A chunk without data, where there must be some."""
    STREAM_TOO_LARGE = "stream_too_large"
    """More bytes were sent than a bundle may have."""
    SHA256_MISSING = "sha256_missing"
    """The last chunk of the zip does not carry the zip's SHA-256."""
    SHA256_NOT_LAST = "sha256_not_last"
    """A chunk came after the one with the SHA-256, which is the last."""
    SHA256_MALFORMED = "sha256_malformed"
    """What stands for the SHA-256 is not 64 hexadecimal digits."""
    SHA256_MISMATCH = "sha256_mismatch"
    """The zip's SHA-256 is another one."""
    METADATA_MISSING = "metadata_missing"
    """The first message is not the metadata."""
    METADATA_REPEATED = "metadata_repeated"
    """Metadata came a second time."""
    UNKNOWN_FORMAT = "unknown_format"
    """The metadata announces another format than plain files."""
    FILE_OUT_OF_ORDER = "file_out_of_order"
    """A chunk of another file than the one that is due."""
    INDEX_GAP = "index_gap"
    """A chunk of a file has another index than the next one."""
    LAST_CHUNK_MISSING = "last_chunk_missing"
    """The stream ended before the last chunk of the last file."""
    CHUNK_AFTER_END = "chunk_after_end"
    """A chunk came after the last one of the last file."""
    FINGERPRINT_MISMATCH = "fingerprint_mismatch"
    """The files' fingerprint is not the one the metadata gives."""

    NOT_A_ZIP = "not_a_zip"
    """The bytes are no zip that ends with its directory, or the directory cannot be read."""
    ENCRYPTED = "encrypted"
    """A file is encrypted."""
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    """A file is neither stored nor deflated."""
    SYMLINK = "symlink"
    """A file is a symbolic link."""
    NOT_A_FILE = "not_a_file"
    """An entry is a directory, a device or the like."""

    TOO_MANY_FILES = "too_many_files"
    """More files than a bundle may have."""
    NO_FILES = "no_files"
    """There is not one file."""
    NAME_EMPTY = "name_empty"
    """A file has no name."""
    NAME_TOO_LONG = "name_too_long"
    """A file's name is longer than any known one."""
    CONTROL_CHARACTER = "control_character"
    """A file's name has a NUL or another control character."""
    NAME_NOT_ASCII = "name_not_ascii"
    """A file's name has characters that file systems spell in several ways."""
    BACKSLASH = "backslash"
    """A file's name has a backslash, which some systems take for a separator."""
    DRIVE_PREFIX = "drive_prefix"
    """A file's name begins with a drive, or has a colon."""
    ABSOLUTE_PATH = "absolute_path"
    """A file's name begins at the root."""
    TRAVERSAL = "traversal"
    """A file's name leads out of the directory."""
    NESTED_DIRECTORY = "nested_directory"
    """A file's name leads into another directory."""
    NOT_A_TOKENIZER_FILE = "not_a_tokenizer_file"
    """A file is none of those that bundles hold."""
    DUPLICATE_NAME = "duplicate_name"
    """Two files have one name."""
    CASE_COLLISION = "case_collision"
    """Two names differ in case only, and are one file on some systems."""

    UNPACKED_TOO_LARGE = "unpacked_too_large"
    """The files are larger than a bundle's may be."""
    RATIO_TOO_HIGH = "ratio_too_high"
    """A file inflates to many times what any tokenizer file does."""
    SIZE_MISMATCH = "size_mismatch"
    """A file is longer or shorter than it was said to be."""
    CORRUPT_DATA = "corrupt_data"
    """A file cannot be read or inflated, or its checksum is another one."""


_OF_THE_CALL: Final = frozenset({
    Fault.UNREACHABLE, Fault.DEADLINE_EXCEEDED, Fault.NOT_OFFERED, Fault.WORKER_REFUSED,
    Fault.STREAM_BROKEN,
})  # fmt: skip


class BundleError(MmrouteError):
    """A worker's bundle could not be fetched, or is refused.

    Attributes:
        reason: `bundle_unavailable`, or `bundle_refused`.
        fault: the particular fault.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        unavailable = fault in _OF_THE_CALL
        super().__init__(
            Reason.BUNDLE_UNAVAILABLE if unavailable else Reason.BUNDLE_REFUSED, message
        )
        self.fault = fault
