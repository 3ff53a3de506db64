"""Files of JSON Lines: one object in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmroute.errors import MmrouteError, Reason

__all__ = ["json_objects"]


def json_objects(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The objects of a file.

    Yields:
        The number of the line, path and number as messages name them, and the object.

    Raises:
        MmrouteError: `missing_file`; `malformed_file`, naming the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MmrouteError(Reason.MISSING_FILE, f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise MmrouteError(Reason.MALFORMED_FILE, f"{path}: not UTF-8: {error}") from error
    # Only a line feed ends a line: strings may hold other separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise MmrouteError(Reason.MALFORMED_FILE, f"{where}: not JSON: {error}") from error
        if not isinstance(value, dict):
            found = type(value).__name__
            raise MmrouteError(
                Reason.MALFORMED_FILE, f"{where}: must be a JSON object, found {found}"
            )
        yield number, where, value
