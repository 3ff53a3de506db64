"""What commands write: lines on standard error, progress, tables, failures, exit statuses."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeVar

from mmroute.errors import MmrouteError

EXIT_FAILURE = 1
EXIT_USAGE = 2
_PROGRESS_EVERY: Final = 0.5  # seconds
_NARROWEST_COLUMN: Final = 12
_T = TypeVar("_T")


def say(what: str) -> None:
    """Write a line to standard error."""
    print(f"mmroute: {what}", file=sys.stderr, flush=True)


def show_progress(text: str) -> None:
    """Replace the last line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def with_progress(
    items: Iterable[_T], what: str, *, total: int | None = None, watched: bool
) -> Iterator[_T]:
    """The items, which are counted on standard error if `watched`."""
    started = shown_at = time.monotonic()
    count = 0
    for item in items:
        yield item
        count += 1
        now = time.monotonic()
        if watched and now - shown_at > _PROGRESS_EVERY:
            seconds = (now - started) / count * ((total or count) - count)
            left = f" of {total}, {seconds:.0f} s left" if total else ""
            show_progress(f"{count} {what}{left}")
            shown_at = now
    if watched:
        show_progress(f"{count} {what}\n")


def failed(arguments: argparse.Namespace, error: object, status: int = EXIT_USAGE) -> int:
    """Report an error on stderr, or with ``--json`` as an object on stdout."""
    reason = error.reason if isinstance(error, MmrouteError) else "usage"
    if isinstance(error, OSError):
        reason = "os_error"
    if getattr(arguments, "json", False):
        print(json.dumps({"error": {"reason": reason, "message": str(error)}}))
    else:
        say(f"{reason}: {error}" if isinstance(error, MmrouteError) else str(error))
    return status


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns, the heading first; for a terminal long cells are wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _terminal() - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    for row in rows:
        cells = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(line, widths, strict=True))
            print("  ".join(padded).rstrip())


def print_text(text: str) -> None:
    """Print a paragraph, which is wrapped for a terminal."""
    print("\n".join(_wrap(text, _terminal())))


def _terminal() -> int:
    """The columns of the terminal, or no end of them."""
    return shutil.get_terminal_size((sys.maxsize, 0)).columns


def _wrap(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else textwrap.wrap(text, width, break_on_hyphens=False)
