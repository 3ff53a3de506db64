"""Text cut at the tokens that are matched as they are written, for engines that do not do it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_SPACE: Final = r"[^\S\x1c-\x1f]*"  # Unicode's White_Space, which Python's \s goes beyond


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One such token.

    Attributes:
        token_id: its ID.
        special: left out of decoded text where that is asked for.
        lstrip: takes the white space in front of it with it.
        rstrip: the same behind it.
    """

    token_id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False


class AddedTokens:
    """Tokens by their texts. The leftmost match wins, and of several there the longest."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        self._tokens = dict(tokens)
        ordered = sorted(filter(None, tokens), key=len, reverse=True)
        alternatives = [_expression(text, tokens[text]) for text in ordered]
        self._pattern = re.compile("|".join(alternatives)) if alternatives else None

    def cut(self, text: str) -> Iterator[tuple[int, str, int | None]]:
        """The parts of a text: where each begins, and the ID if it is one of the tokens."""
        at = 0
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if match.start() > at:
                yield at, text[at : match.start()], None
            token = match[match.lastindex or 0]  # without the white space it took
            yield match.start(), token, self._tokens[token].token_id
            at = match.end()
        if at < len(text):
            yield at, text[at:], None


def _expression(text: str, token: AddedToken) -> str:
    if not (token.lstrip or token.rstrip):
        return re.escape(text)
    return f"{_SPACE * token.lstrip}({re.escape(text)}){_SPACE * token.rstrip}"
