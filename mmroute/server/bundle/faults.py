"""The reasons why a bundle cannot be fetched or used."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mmroute.errors import MmrouteError, Reason


class Fault(StrEnum):
    """Why there is no bundle. The values are stable: routers may branch on them.

    The first group is about the call, which may succeed when it is made again. The others are about
    what the worker sent: the stream, the zip, the names in it, the contents. ``docs/bundles.md``
    lists the checks. The message of an error has the value that was found.
    """

    UNREACHABLE = "unreachable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_OFFERED = "not_offered"
    """The worker answers, and has none of the services that give bundles."""
    WORKER_REFUSED = "worker_refused"
    """The worker answered with an error instead of a stream."""
    STREAM_BROKEN = "stream_broken"
    """The stream ended with an error after it had begun."""

    MALFORMED_MESSAGE = "malformed_message"
    EMPTY_STREAM = "empty_stream"
    EMPTY_CHUNK = "empty_chunk"
    STREAM_TOO_LARGE = "stream_too_large"
    SHA256_MISSING = "sha256_missing"
    SHA256_NOT_LAST = "sha256_not_last"
    SHA256_MALFORMED = "sha256_malformed"
    SHA256_MISMATCH = "sha256_mismatch"
    METADATA_MISSING = "metadata_missing"
    METADATA_REPEATED = "metadata_repeated"
    UNKNOWN_FORMAT = "unknown_format"
    FILE_OUT_OF_ORDER = "file_out_of_order"
    INDEX_GAP = "index_gap"
    LAST_CHUNK_MISSING = "last_chunk_missing"
    CHUNK_AFTER_END = "chunk_after_end"
    FINGERPRINT_MISMATCH = "fingerprint_mismatch"

    NOT_A_ZIP = "not_a_zip"
    ENCRYPTED = "encrypted"
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    SYMLINK = "symlink"
    NOT_A_FILE = "not_a_file"

    TOO_MANY_FILES = "too_many_files"
    NO_FILES = "no_files"
    NAME_EMPTY = "name_empty"
    NAME_TOO_LONG = "name_too_long"
    CONTROL_CHARACTER = "control_character"
    NAME_NOT_ASCII = "name_not_ascii"
    BACKSLASH = "backslash"
    DRIVE_PREFIX = "drive_prefix"
    ABSOLUTE_PATH = "absolute_path"
    TRAVERSAL = "traversal"
    NESTED_DIRECTORY = "nested_directory"
    NOT_A_TOKENIZER_FILE = "not_a_tokenizer_file"
    DUPLICATE_NAME = "duplicate_name"
    CASE_COLLISION = "case_collision"

    UNPACKED_TOO_LARGE = "unpacked_too_large"
    RATIO_TOO_HIGH = "ratio_too_high"
    SIZE_MISMATCH = "size_mismatch"
    CORRUPT_DATA = "corrupt_data"


_OF_THE_CALL: Final = frozenset({
    Fault.UNREACHABLE, Fault.DEADLINE_EXCEEDED, Fault.NOT_OFFERED, Fault.WORKER_REFUSED,
    Fault.STREAM_BROKEN,
})  # fmt: skip


class BundleError(MmrouteError):
    """A worker's bundle could not be fetched, or is refused.

    Attributes:
        reason: `bundle_unavailable` or `bundle_refused`.
        fault: the fault that was found.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        unavailable = fault in _OF_THE_CALL
        super().__init__(
            Reason.BUNDLE_UNAVAILABLE if unavailable else Reason.BUNDLE_REFUSED, message
        )
        self.fault = fault
