"""The reasons why a bundle cannot be fetched or used."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mmroute.errors import MmrouteError, Reason


class Fault(StrEnum):
    """Why there is no bundle. The values are stable: routers may branch on them.

    The first group is about the call, which may succeed when it is made again. The others are about
    what the worker sent. The message of an error says what was found.
    """

    UNREACHABLE = "unreachable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_OFFERED = "not_offered"
    """The worker answers, and has none of the services that give bundles."""
    WORKER_REFUSED = "worker_refused"
    """The worker answered with an error instead of a stream."""
    STREAM_BROKEN = "stream_broken"
    """The stream ended with an error after it had begun."""

    MALFORMED_STREAM = "malformed_stream"
    """The messages are not a zip that ends with its SHA-256."""
    SHA256_MISMATCH = "sha256_mismatch"
    TOO_LARGE = "too_large"
    """The stream, the files, their number or the ratio of a file to its deflated size."""
    NOT_A_ZIP = "not_a_zip"
    NOT_A_FILE = "not_a_file"
    """An entry of the zip is a link or a directory, is encrypted or of another compression."""
    BAD_NAME = "bad_name"
    """A file has a name that no tokenizer file has, or that another one has."""
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
