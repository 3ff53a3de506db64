"""Log lines as JSON.

A line names the model, the duration and the reason. It never has a prompt, an image, or a message
that quotes them.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any, Final

_LOG: Final = logging.getLogger("mmroute.server")
_LONGEST_ID: Final = 128
_ID_BYTES: Final = 16  # of a random ID
_DIGITS_OF_ANSWERS: Final = 16  # as in vLLM's
_FAILURE: Final = 500
_FIELDS: Final = ("model", "outcome", "reason", "param", "tokens", "images", "bytes")


@dataclass(slots=True, eq=False)
class LogEntry:
    """The fields of one request's log line, which are filled in while it is answered."""

    client_id: str
    model: str | None = None
    outcome: str | None = None
    reason: str | None = None
    param: str | None = None
    tokens: int = 0
    images: int = 0
    bytes: int = 0

    @property
    def request_id(self) -> str:
        """The client's ID of the request, or a random one, which is made when it is first read."""
        if not self.client_id:
            # It need not be secret; the system's own random numbers cost as much as a small answer.
            self.client_id = random.randbytes(_ID_BYTES).hex()
        return self.client_id[:_LONGEST_ID]

    def own_id(self) -> str:
        """As much of `request_id` as an answer has if its client sent none."""
        return self.request_id[:_DIGITS_OF_ANSWERS]


class JsonLines(logging.Formatter):
    """Writes a record as one JSON object. The record's `fields` become keys of the object."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`. A traceback is written as places in files, no values."""
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
    """Write the log lines of mmroute, uvicorn and the event loop, and warnings, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mmroute", "asyncio", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False

    def log_warning(message: Warning | str, *_: object) -> None:
        _LOG.warning("warning", extra={"fields": {"text": str(message)}})

    warnings.showwarning = log_warning  # type: ignore[assignment]  # it has more arguments


def log_request(entry: LogEntry, route: str, method: str, status: int, seconds: float) -> None:
    """Write the log line of a request."""
    level = logging.ERROR if status >= _FAILURE else logging.INFO
    if not _LOG.isEnabledFor(level):
        return
    fields = {
        "request_id": entry.request_id,
        "method": method,
        "route": route,
        "status": status,
        "seconds": round(seconds, 6),
        **{name: getattr(entry, name) for name in _FIELDS},
    }
    _LOG.log(level, "request", extra={"fields": fields})
