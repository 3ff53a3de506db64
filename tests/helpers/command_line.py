"""The command line, called as its script calls it, without a process for each call."""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import dataclass
from unittest import mock

from mmroute.cli import main


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


def run(*arguments: str, stdin: str = "") -> Finished:
    """Run one command; UTF-8 goes in and comes out."""
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        mock.patch("sys.stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = main(arguments)
        except SystemExit as bad_usage:
            status = int(bad_usage.code or 0)
    for name in ("mmroute", "asyncio"):  # a server logs to the stream that is closed below
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    written = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        written.append(stream.read())
    return Finished(status, *written)
