"""The lines of a trace, a file of JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmroute.errors import InexactError
from mmroute.requests.lines import json_object, numbered, request_of
from mmroute.requests.request import Request


def numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    with Path(path).open("rb") as file:
        yield from numbered(file)


def requests_of(
    path: str, wanted: str | None = None, at_line: int | None = None
) -> Iterator[Request]:
    """The requests of a file: all, the ones with an ID, or the one of a line."""
    for number, value in objects_of(path, wanted, at_line):
        try:
            yield request_of(value)
        except InexactError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error


def objects_of(
    path: str, wanted: str | None = None, at_line: int | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbers of the lines of requests, and their JSON; the arguments are `requests_of`'s."""
    has_any = False
    for number, line in numbered_lines(path):
        if at_line not in (None, number):
            continue
        try:
            value = json_object(line)
        except InexactError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if wanted is None or str(value.get("id")) == wanted:
            has_any = True
            yield number, value
    if not has_any:
        named = "" if wanted is None else f" with id {wanted}"
        named = named if at_line is None else f" in line {at_line}"
        raise ValueError(f"{path} has no request{named}")
