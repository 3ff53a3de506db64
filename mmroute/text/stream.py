"""Incremental decoding: the text that each token ID adds."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeVar

from mmroute.text.pieces import PieceTexts, pieces_of
from mmroute.token_ids import MAX_TOKEN_ID, TokenIds

FlushErrors = Literal["replace", "drop"]
"""What to do at the end with bytes of an incomplete character: replace by U+FFFD, or drop."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# The most tokens of an incomplete character: three bytes, each of them a token.
_MAX_REST: Final = 3
# The most tokens that are held and decoded again with each new one. A text may end with U+FFFD
# for ever, so there must be a limit.
_MAX_HELD: Final = 64
# The number of the prompt's last tokens that are decoded first; doubled until they have a text.
_TAIL: Final = 8


class TokenDecoder(Protocol):
    """The members that a stream needs of a tokenizer.

    A tokenizer may also have an attribute `pieces` (`mmroute.text.pieces.Pieces`, or None).
    With it most tokens are looked up instead of decoded.
    """

    @property
    def max_token_id(self) -> int:
        """The largest ID of the vocabulary, added tokens included."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of token IDs; an ID in a gap of the vocabulary has no text."""


_Decoder = TypeVar("_Decoder")


def own_copy(this: _Decoder) -> _Decoder:
    """An independent copy of a decoder: its lists and its stream are copied, too."""
    other = object.__new__(type(this))
    for name, value in vars(this).items():
        setattr(other, name, copy.copy(value) if isinstance(value, list | DecodeStream) else value)
    return other


class DecodeStream:
    """Decodes a sequence piece by piece, as its token IDs arrive.

    All pieces and the result of `flush` together are the text of prompt and output, less the text
    of the prompt. This holds for any tokenizer, because each token is decoded with its neighbours.
    So a character made of several tokens is never split, and a space is kept that a decoder strips
    at the beginning of a text. As in vLLM, a piece is returned as soon as the text does not
    end with U+FFFD.

    If a prompt ends inside a character, the output begins with that character. A decoder may take
    back text that was already returned: SentencePiece's byte fallback makes a run of bytes invalid
    if its end is invalid. Then the returned text stays, and the tokens after it are decoded without
    those before.

    A stream needs bounded memory: it keeps the last few tokens, and at most 64 tokens that do not
    make a character yet. `copy.copy` makes an independent stream, which continues from the same
    state.

    Args:
        tokenizer: the tokenizer that decodes.
        prompt_token_ids: the prompt, or its end; IDs outside the vocabulary have no text.
        skip_special_tokens: whether to leave the texts of special tokens out.
    """

    def __init__(
        self,
        tokenizer: TokenDecoder,
        *,
        prompt_token_ids: Sequence[int] | TokenIds = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        pieces = pieces_of(tokenizer)
        self._root: PieceTexts | None = None
        if pieces is not None:
            self._root = pieces.texts(skip_special_tokens=skip_special_tokens)
        # The texts that a next token adds, if they can be looked up: only after a non-empty text.
        self._next: Mapping[int, str | PieceTexts | None] = _UNKNOWN
        # The tokens that are decoded together: first `read` tokens whose text, `prefix`, was
        # returned, then the held ones.
        self._window: list[int] = []
        self._read = 0
        self._prefix: str | None = ""  # None: not decoded yet
        if len(prompt_token_ids):
            self._seed(prompt_token_ids)

    __copy__ = own_copy

    def step(self, token_id: int) -> str:
        """The text that one more token completes; empty if it completes none.

        An ID above the vocabulary has no text, as in vLLM.

        Raises:
            ValueError: the ID is below 0 or above 2**32 - 1.
        """
        known = self._next[token_id]
        if isinstance(known, str):
            if self._root is not None and self._next is not self._root:
                self._next = self._root
                del self._window[1:]
            return known
        if known is None:
            return self._decode_next(token_id)
        self._next = known
        self._window.append(token_id)
        return ""

    def step_batch(self, token_ids: Iterable[int]) -> str:
        """The text that several more tokens complete."""
        return "".join(map(self.step, token_ids))

    def flush(self, errors: FlushErrors = "replace") -> str:
        """The end of the text: the held tokens, with U+FFFD for incomplete characters.

        Args:
            errors: ``drop`` leaves all held tokens out, as vLLM does.
        """
        if self._read == len(self._window):
            return ""
        if errors == "drop":
            del self._window[self._read :]
            if self._next is not _UNKNOWN and self._root is not None:
                self._next = self._root
            return ""
        return self._give(self._decode(self._window), len(self._window))

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip)

    def _decode_next(self, token_id: int) -> str:
        token_id = operator.index(token_id)
        if not 0 <= token_id <= MAX_TOKEN_ID:
            raise ValueError(f"{token_id} is not a token ID: IDs are from 0 to 2**32 - 1")
        if token_id > self._tokenizer.max_token_id:
            return ""
        window = self._window
        if self._prefix is None:
            self._prefix = self._decode(window[: self._read])
        window.append(token_id)
        self._next = _UNKNOWN
        text = self._decode(window)
        if text.endswith(_REPLACEMENT) or text == self._prefix:
            return self._hold(text)
        return self._give(text, len(window))

    def _hold(self, text: str) -> str:
        window = self._window
        if not text.endswith(_REPLACEMENT) and not self._decode(window[-1:] * 2):
            window.pop()  # the token has no text at all, like a special token that is skipped
        if len(window) - self._read < _MAX_HELD:
            return ""
        for end in range(len(window) - 1, len(window) - _MAX_REST - 2, -1):
            head = self._decode(window[:end])
            if head + self._decode(window[end:]) == text:  # the cut splits no character
                return self._give(head, end)
        return self._give(text, len(window))

    def _give(self, text: str, end: int) -> str:
        """The new part of `text`, which is the text of the window's tokens before `end`."""
        prefix = self._prefix or ""
        if text.startswith(prefix):
            new = text[len(prefix) :]
        elif prefix.endswith(_REPLACEMENT):
            new = text[self._shown_of_prompt(text, prefix) :]
        else:
            new = self._decode(self._window[self._read : end])
        self._continue_after(self._window[self._read : end], self._window[end:])
        return new

    def _continue_after(self, returned: list[int], held: list[int]) -> None:
        if self._root is None:
            self._window, self._read, self._prefix = returned + held, len(returned), None
            return
        # The letter takes the place of the returned text: the texts of tokens after it are known.
        letter, text = self._root.letter
        self._window, self._read, self._prefix = [letter, *held], 1, text
        self._next = _UNKNOWN if held else self._root

    def _shown_of_prompt(self, text: str, prompt_text: str) -> int:
        """The number of characters of `text` that belong to the prompt, which ends in U+FFFD."""
        pairs = zip(text, prompt_text, strict=False)
        shown = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        for rest in range(1, min(_MAX_REST, self._read) + 1):
            without_rest = self._decode(self._window[: self._read - rest])
            if text.startswith(without_rest):
                shown = max(shown, len(without_rest))
        return shown

    def _seed(self, prompt_token_ids: Sequence[int] | TokenIds) -> None:
        """Begin after the prompt, with the shortest end of it that has a text."""
        last = int(prompt_token_ids[-1])
        if self._root is not None and isinstance(text := self._root[last], str) and text:
            self._continue_after([last], [])
            return
        largest = self._tokenizer.max_token_id
        count, text = 0, ""
        while not text.rstrip(_REPLACEMENT) and count < len(prompt_token_ids):
            count = 2 * count or _TAIL
            ids = [int(token_id) for token_id in prompt_token_ids[-count:]]
            self._window = [token_id for token_id in ids if 0 <= token_id <= largest]
            text = self._decode(self._window)
        self._read, self._prefix = len(self._window), text
        if text and not text.endswith(_REPLACEMENT):
            self._continue_after(self._window, [])


class _Unknown(dict[int, None]):
    def __missing__(self, token_id: int) -> None:
        """None for every token: each one must be decoded."""


_UNKNOWN: Final = _Unknown()
