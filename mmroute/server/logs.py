"""Log lines as JSON.

They say which, how long and why; never a prompt, an image, or a message that quotes them.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
import traceback
from typing import Any, Final

_LOG: Final = logging.getLogger("mmroute.server")
_LONGEST_ID: Final = 128
_ID_BYTES: Final = 16  # of one that is drawn
_FAILURE: Final = 500


class LogEntry:
    """What is known of one request when it has been answered; filled in on its way.

    Args:
        given_id: the ID that the client gave the request; empty if it gave none.
    """

    __slots__ = (
        "_id", "bytes", "images", "model", "outcome", "param", "reason", "tokens",
    )  # fmt: skip

    def __init__(self, given_id: str) -> None:
        self._id = given_id[:_LONGEST_ID]
        self.model: str | None = None
        self.outcome: str | None = None
        self.reason: str | None = None
        self.param: str | None = None
        self.tokens = self.images = self.bytes = 0

    @property
    def request_id(self) -> str:
        """The client's own, or one that is drawn when somebody asks for it."""
        if not self._id:
            # It need not be secret; the system's own random numbers cost as much as a small answer.
            self._id = random.randbytes(_ID_BYTES).hex()
        return self._id


class JsonLines(logging.Formatter):
    """One JSON object for each record; `fields` of a record are its own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`. Tracebacks have places, and no values."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["at"] = [
                f"{frame.f_code.co_filename}:{number} {frame.f_code.co_name}"
                for frame, number in traceback.walk_tb(record.exc_info[2])
            ]
        return json.dumps(line, ensure_ascii=True, default=str)


def configure(level: str) -> None:
    """Write the log lines of mmroute and of the event loop to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mmroute", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False


def log_request(entry: LogEntry, route: str, method: str, status: int, seconds: float) -> None:
    """One line for one request."""
    level = logging.ERROR if status >= _FAILURE else logging.INFO
    if not _LOG.isEnabledFor(level):
        return
    fields = {
        "request_id": entry.request_id,
        "method": method,
        "route": route,
        "status": status,
        "seconds": round(seconds, 6),
        "model": entry.model,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "param": entry.param,
        "tokens": entry.tokens,
        "images": entry.images,
        "bytes": entry.bytes,
    }
    _LOG.log(level, "request", extra={"fields": fields})
