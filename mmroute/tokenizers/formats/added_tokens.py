"""Splits a text at its added tokens, for libraries that do not do so themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_SPACE: Final = r"[^\S\x1c-\x1f]*"  # Unicode's White_Space, which Python's \s goes beyond


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One added token."""

    token_id: int
    special: bool = True  # whether decoding with `skip_special_tokens` leaves the token out
    lstrip: bool = False  # whether the token swallows the white space before it
    rstrip: bool = False  # whether the token swallows the white space after it


class AddedTokenSplitter:
    """Splits a text at the leftmost, then longest, of its added tokens."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        self._tokens = dict(tokens)
        ordered = sorted(filter(None, tokens), key=len, reverse=True)
        alternatives = [_expression(text, tokens[text]) for text in ordered]
        self._pattern = re.compile("|".join(alternatives)) if alternatives else None

    def split(self, text: str) -> Iterator[tuple[int, str, int | None]]:
        """The parts of a text: start, text, and the ID if the part is an added token."""
        at = 0
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if match.start() > at:
                yield at, text[at : match.start()], None
            token = match[match.lastindex or 0]  # without the white space that it swallowed
            yield match.start(), token, self._tokens[token].token_id
            at = match.end()
        if at < len(text):
            yield at, text[at:], None


def _expression(text: str, token: AddedToken) -> str:
    if not (token.lstrip or token.rstrip):
        return re.escape(text)
    return f"{_SPACE * token.lstrip}({re.escape(text)}){_SPACE * token.rstrip}"
