"""The head of a request, and a response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson

NO_HEADERS: Final[Mapping[str, str]] = {}


# These are not frozen, because making a frozen object takes three times as long.
@dataclass(slots=True, eq=False)
class Head:
    """The request line and the headers of a request."""

    method: str  # in capitals
    path: str  # decoded, without the query
    query: str
    headers: Mapping[bytes, bytes] = field(repr=False)  # names in lower case; of several the first

    def header(self, name: bytes) -> str:
        """The value of a header; empty if the request does not have the header."""
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True, eq=False)
class Response:
    """A response to a request."""

    status: int
    body: bytes = field(repr=False, default=b"")
    headers: Mapping[str, str] = field(default_factory=dict)  # without those for length and type
    media_type: str | None = None  # None for an empty body


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] = NO_HEADERS
) -> Response:
    """A JSON response, in which numpy arrays are lists."""
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # orjson writes no lone surrogate, and no integer of more than 64 bits
        raw = json.dumps(value, default=np.ndarray.tolist).encode()
    return Response(status, raw, headers, "application/json")
