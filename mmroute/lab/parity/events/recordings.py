"""Files of requests, each with the events that came after it.

The format is JSON Lines. Each line has one request: ``id``, ``request`` (as ``mmroute tokens``
reads it), ``events`` (the payloads of the engine's messages in base64), and what the engine told
of it: ``refused`` (a message), or ``token_ids``, ``num_tokens`` and ``cached_tokens``; ``unsent``
says why a request was not sent or not answered. A line of kind ``meta`` has what its server told:
``engine`` and ``version``, ``frontend``, ``model_string`` and ``max_model_len``. Other fields are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mmroute.engines.running import RunningEngine, running_engine
from mmroute.errors import EventsError, Reason
from mmroute.kv_events import decode_events
from mmroute.lab.parity.cases import Case, Served, json_objects
from mmroute.lab.parity.events.comparison import Announced
from mmroute.lab.parity.oracles.common import OracleError, validated
from mmroute.release import PYTHON


class _Line(msgspec.Struct, omit_defaults=True):
    id: str
    request: dict[str, Any]
    events: list[bytes] = []
    unsent: str = ""
    refused: str | None = None
    token_ids: list[int] | None = None
    num_tokens: int | None = None
    cached_tokens: int | None = None

    def served(self) -> Served:
        ids = None if self.token_ids is None else np.array(self.token_ids, np.uint32)
        return Served(self.refused, ids, self.num_tokens, self.cached_tokens)


class _Meta(msgspec.Struct, omit_defaults=True, tag_field="kind", tag="meta"):
    """The description of the engine that the server gave. A line of vectors may lack it."""

    engine: str = ""
    version: str = ""
    frontend: str = PYTHON
    model_string: str = ""
    max_model_len: int | None = None

    def running(self) -> RunningEngine | None:
        if not self.engine:
            return None
        found = running_engine(self.engine, self.version).behind(self.frontend)
        return replace(found, model_string=self.model_string, max_model_len=self.max_model_len)


def read_recording(path: Path) -> tuple[RunningEngine | None, list[Announced]]:
    """The engine of a file, if the file tells it, and the requests."""
    found: list[Announced] = []
    running = None
    for _, where, value in json_objects(path):
        try:
            if value.get("kind") == "meta":
                running = validated(_Meta, value, where).running()
                continue
            read = validated(_Line, value, where)
            batches = tuple(map(decode_events, read.events))
        except EventsError as error:
            raise OracleError(f"{where}: {error}", Reason.MALFORMED_FILE) from error
        case = Case(read.id, "recorded", read.request)
        payloads = tuple(read.events)
        found.append(Announced(case, batches, read.served(), read.unsent, payloads))
    return running, found


def recorded(
    path: Path, all_announced: Iterable[Announced], running: RunningEngine | None
) -> Iterator[Announced]:
    """Write requests and their events to a file, each before it is handed on."""
    with path.open("wb") as file:
        if running is not None:
            told = {name: getattr(running, name) for name in _Meta.__struct_fields__}
            file.write(msgspec.json.encode(_Meta(**told)) + b"\n")
        for one in all_announced:
            ids = one.served.token_ids
            line = _Line(
                one.case.id,
                dict(one.case.request),
                list(one.payloads),
                one.unsent,
                one.served.refusal,
                None if ids is None else ids.tolist(),
                one.served.num_tokens,
                one.served.cached_tokens,
            )
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            yield one
