"""Files of requests, each with the events that came after it.

The format is JSON Lines. Each line has one request: ``id``, ``request`` (as ``mmroute tokens``
reads it), ``events`` (the payloads of the engine's messages in base64), and ``refused`` (a message)
if the engine refused it. Other fields and a line of kind ``meta`` are ignored.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Base64Bytes, BaseModel, ValidationError

from mmroute.errors import EventsError, Reason, problem
from mmroute.kv_events import decode_events
from mmroute.parity.cases import Case, json_objects
from mmroute.parity.events.comparison import Announced
from mmroute.parity.oracles.common import OracleError


class _Line(BaseModel):
    id: str
    request: dict[str, Any]
    events: list[Base64Bytes] = []
    refused: str | None = None


def read_recording(path: Path) -> list[Announced]:
    """The requests of a file.

    Raises:
        MmrouteError: `missing_file`, `malformed_file`, naming the line.
    """
    found = []
    for _, where, value in json_objects(path):
        if value.get("kind") == "meta":
            continue
        try:
            read = _Line.model_validate(value)
            batches = tuple(map(decode_events, read.events))
        except ValidationError as error:
            wrong = "; ".join(map(problem, error.errors()))
            raise OracleError(f"{where}: {wrong}", Reason.MALFORMED_FILE) from error
        except EventsError as error:
            raise OracleError(f"{where}: {error}", Reason.MALFORMED_FILE) from error
        found.append(Announced(Case(read.id, "recorded", read.request), batches, read.refused))
    return found


def write_recording(path: Path, announced: Iterable[Announced]) -> None:
    """Write requests and their events to a file.

    Raises:
        OSError: the file cannot be written.
    """
    lines = []
    for one in announced:
        payloads = [base64.b64encode(msgspec.msgpack.encode(b)).decode() for b in one.batches]
        line = {"id": one.case.id, "request": dict(one.case.request), "events": payloads}
        lines.append(line if one.refused is None else line | {"refused": one.refused})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
