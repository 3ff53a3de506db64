"""The lines of a trace, from a file of JSON Lines or from the rows of a Parquet file."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from mmroute.errors import InexactError, install_command
from mmroute.requests.lines import API_FIELDS, json_object, numbered, request_of
from mmroute.requests.request import Request

_ROWS: Final = 256  # rows that are decoded at once
# Columns that hold JSON, because a column has one type and these fields have values of several.
_NESTED: Final = {*Request._fields, *API_FIELDS, "hash_ids"} - {
    "prompt", "model", "cache_salt", "reasoning_effort",
}  # fmt: skip


def is_parquet(path: str) -> bool:
    """Whether a file is a Parquet file, by its name."""
    return path.endswith(".parquet")


def open_file(path: str) -> BinaryIO:
    """Open a local file, or one in object storage, such as ``s3://bucket/trace.jsonl``."""
    if "://" not in path:
        return Path(path).open("rb")
    storage, name = _arrow("fs").FileSystem.from_uri(path)
    return io.BufferedReader(storage.open_input_file(name))


def numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1.

    A row of a Parquet file becomes a line. Its fields are the columns, without missing values. A
    text in a column of a nested field, such as ``messages``, is read as JSON.
    """
    with open_file(path) as file:
        lines = _rows(file) if is_parquet(path) else file
        yield from numbered(lines)


def requests_of(
    path: str, wanted: str | None = None, at_line: int | None = None
) -> Iterator[Request]:
    """The requests of a file."""
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


def _arrow(module: str) -> Any:
    try:
        return importlib.import_module(f"pyarrow.{module}")  # optional and large
    except ImportError as error:
        hint = install_command("parquet")
        raise ValueError(f"Parquet files and object storage need pyarrow: {hint}") from error


def _rows(file: BinaryIO) -> Iterator[bytes]:
    with _arrow("parquet").ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=_ROWS):
            yield from map(line_of_row, batch.to_pylist())


def line_of_row(row: dict[str, Any]) -> bytes:
    """A row of a Parquet file as a line of JSON."""
    fields = _without_missing(row)
    for name in _NESTED:
        if isinstance(fields.get(name), str):
            with contextlib.suppress(ValueError, RecursionError):  # the request is refused later
                fields[name] = json.loads(fields[name])
    return json.dumps(fields, default=str).encode()


def _without_missing(value: Any) -> Any:
    """A value without null fields: Arrow adds to each struct the fields of all its column's."""
    if isinstance(value, dict):
        return {n: _without_missing(each) for n, each in value.items() if each is not None}
    if isinstance(value, list):
        return list(map(_without_missing, value))
    return value
