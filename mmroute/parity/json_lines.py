"""Files of JSON Lines: one object in each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.request_lines import json_object, numbered

__all__ = ["json_objects"]


def json_objects(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The objects of a file.

    Yields:
        The number of the line, path and number as messages name them, and the object.

    Raises:
        MmrouteError: `missing_file`; `malformed_file`: there is no line, or one is no object.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MmrouteError(Reason.MISSING_FILE, f"{path} cannot be read: {error}") from error
    if not content.strip():
        raise MmrouteError(Reason.MALFORMED_FILE, f"{path} holds no request")
    # Only a line feed ends a line: strings may hold other separators.
    for number, line in numbered(content.split(b"\n")):
        where = f"{path}, line {number}"
        try:
            value = json_object(line)
        except InexactError as error:
            raise MmrouteError(Reason.MALFORMED_FILE, f"{where}: {error}") from error
        yield number, where, value
