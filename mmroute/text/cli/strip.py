"""Prints a text as a strip of its tokens, for people at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from mmroute.cli.output import print_table, say
from mmroute.text.loaded_tokenizer import LoadedTokenizer

_BACKGROUNDS = (153, 157, 222, 217, 189, 158)  # light, from the palette of 256 colours
_BLACK_ON = "\x1b[38;5;16;48;5;{}m"
_RESET = "\x1b[0m"
_REST = "·"  # a token whose character is already shown


def print_strip(
    text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]] | None
) -> None:
    """Print the tokens of a text as a strip and a table."""
    pieces = tokens if offsets is None else list(_pieces(text, tokens, offsets))
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    print(_strip(pieces, coloured=sys.stdout.isatty() and not unwanted))
    print()
    rows: list[tuple[str, ...]] = [("ID", "TOKEN")]
    rows += [(str(i), _visible(token)) for i, token in zip(ids, tokens, strict=True)]
    if offsets is not None:
        places = ["CHARACTERS", *(f"{start}-{end}" for start, end in offsets)]
        rows = [(*row, place) for row, place in zip(rows, places, strict=True)]
    print_table(rows)
    print(f"\n{len(ids)} tokens, {len(text)} characters")


def print_notes(tokenizer: LoadedTokenizer) -> None:
    """Print on stderr which engine has these IDs, if they may not be vLLM's."""
    for note in tokenizer.notes:
        say(f"note: {note}")


def _pieces(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> Iterator[str]:
    """The part of the text for each token; together the parts are the text."""
    done = 0
    for token, (start, end) in zip(tokens, offsets, strict=True):
        if start == end:
            yield token  # a token that was put around the text
        else:
            yield text[done:end] or _REST
            done = max(done, end)


def _strip(pieces: list[str], *, coloured: bool) -> str:
    shown = [_visible(piece, newline="↵\n") for piece in pieces]
    if not coloured:
        return "|".join(shown)
    parts = []
    for at, piece in enumerate(shown):
        colour = _BLACK_ON.format(_BACKGROUNDS[at % len(_BACKGROUNDS)])
        # A background that is not reset at the end of a line would fill the rest of it.
        parts.append(f"{colour}{piece.replace(chr(10), f'{_RESET}{chr(10)}{colour}')}{_RESET}")
    return "".join(parts)


def _visible(text: str, *, newline: str = "\\n") -> str:
    """The text without control characters, which could control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        newline if c == "\n" else c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )
