"""Incremental decoding: the text that each token ID adds."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeVar

from mmroute.geometry import TokenIds
from mmroute.tokenizers.pieces import Pieces, PieceTexts

FlushErrors = Literal["replace", "drop"]
"""What becomes of held text at the end: shown as it decodes, or left out as vLLM does."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_LARGEST_ID: Final = 2**32 - 1
# As many as an incomplete character can have: three bytes, each a token.
_LONGEST_REST: Final = 3
# A text may end with U+FFFD for ever; what is held, and decoded again with each token, may not.
_MOST_HELD: Final = 64
# Of the prompt, to begin with; doubled until it has a text.
_TAIL: Final = 8


class TokenDecoder(Protocol):
    """What a stream needs of a tokenizer.

    A tokenizer may also have an attribute `pieces` (`mmroute.tokenizers.pieces.Pieces`, or None):
    then most tokens are looked up instead of decoded.
    """

    @property
    def max_token_id(self) -> int:
        """The largest ID of the vocabulary, added tokens included."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of token IDs; an ID within the vocabulary that names no token has no text."""


_Decoder = TypeVar("_Decoder")


def own_copy(this: _Decoder) -> _Decoder:
    """A copy for another continuation of the same tokens: its lists and its stream are its own."""
    other = object.__new__(type(this))
    for name, value in vars(this).items():
        setattr(other, name, copy.copy(value) if isinstance(value, list | DecodeStream) else value)
    return other


class DecodeStream:
    """Gives the text of a sequence piece by piece, as its token IDs arrive.

    The pieces and `flush` together are the text of prompt and output without that of the prompt,
    for any tokenizer: neighbours are decoded together, so characters made of several tokens come
    whole, and a space that a decoder strips at the beginning of a text stays in the middle of it.
    A piece is given as vLLM 0.33.0 gives it: as soon as the text does not end with U+FFFD.

    Where a prompt ends inside a character, the output begins with that character, and with no
    other text of the prompt. Where a decoder takes back what was given (SentencePiece's byte
    fallback makes a whole run of bytes invalid if its end is), what was given stays, and the
    tokens behind it are decoded on their own.

    What is kept is bounded, however long the stream: the last few tokens, and at most 64 that are
    held because they do not make a character. `copy.copy` gives a stream that goes on by itself.

    Args:
        tokenizer: who decodes.
        prompt_token_ids: the prompt, or its end; IDs outside the vocabulary have no text.
        skip_special_tokens: give special tokens no text.
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
        pieces: Pieces | None = getattr(tokenizer, "pieces", None)
        self._root: PieceTexts | None = None
        if pieces is not None:
            self._root = pieces.texts(skip_special_tokens=skip_special_tokens)
        # What the next token adds, where that can be looked up: behind a text that is not nothing.
        self._next: Mapping[int, str | PieceTexts | None] = _UNKNOWN
        # What is decoded together: `read` tokens whose text, `prefix`, was given, then those held.
        self._window: list[int] = []
        self._read = 0
        self._prefix: str | None = ""  # None: not decoded yet
        if len(prompt_token_ids):
            self._seed(prompt_token_ids)

    __copy__ = own_copy

    def step(self, token_id: int) -> str:
        """The text that one more token completes; empty if there is none yet.

        An ID above the vocabulary's has no text, as in vLLM.

        Raises:
            ValueError: an ID that no engine can give: below 0, or above 2**32 - 1.
        """
        found = self._next[token_id]
        if isinstance(found, str):
            if self._root is not None and self._next is not self._root:
                self._next = self._root
                del self._window[1:]
            return found
        if found is None:
            return self._decode_next(token_id)
        self._next = found
        self._window.append(token_id)
        return ""

    def step_batch(self, token_ids: Iterable[int]) -> str:
        """The text that several more tokens complete."""
        return "".join(map(self.step, token_ids))

    def flush(self, errors: FlushErrors = "replace") -> str:
        """The end of the text: what was held, with U+FFFD for what is no character.

        Args:
            errors: ``drop`` leaves out all that is held, as vLLM does.
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
        if not 0 <= token_id <= _LARGEST_ID:
            raise ValueError(f"{token_id} is no token ID: IDs are from 0 to 2**32 - 1")
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
            window.pop()  # nothing wherever it stands, like a special token that is skipped
        if len(window) - self._read < _MOST_HELD:
            return ""
        for end in range(len(window) - 1, len(window) - _LONGEST_REST - 2, -1):
            head = self._decode(window[:end])
            if head + self._decode(window[end:]) == text:  # no character is cut in two
                return self._give(head, end)
        return self._give(text, len(window))

    def _give(self, text: str, end: int) -> str:
        """What is new of a text: that of the window's tokens before `end`."""
        prefix = self._prefix or ""
        if text.startswith(prefix):
            new = text[len(prefix) :]
        elif prefix.endswith(_REPLACEMENT):
            new = text[self._shown_of_prompt(text, prefix) :]
        else:
            new = self._decode(self._window[self._read : end])
        self._go_on_behind(self._window[self._read : end], self._window[end:])
        return new

    def _go_on_behind(self, given: list[int], held: list[int]) -> None:
        if self._root is None:
            self._window, self._read, self._prefix = given + held, len(given), None
            return
        # A letter is as good a neighbour as what was given, and what follows it is known.
        letter, text = self._root.letter
        self._window, self._read, self._prefix = [letter, *held], 1, text
        self._next = _UNKNOWN if held else self._root

    def _shown_of_prompt(self, text: str, prompt_text: str) -> int:
        """How much of a text is that of a prompt that ended inside a character, now complete."""
        pairs = zip(text, prompt_text, strict=False)
        shown = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        for rest in range(1, min(_LONGEST_REST, self._read) + 1):
            whole = self._decode(self._window[: self._read - rest])
            if text.startswith(whole):
                shown = max(shown, len(whole))
        return shown

    def _seed(self, prompt_token_ids: Sequence[int] | TokenIds) -> None:
        """Begin behind the prompt: with as much of its end as has a text."""
        last = int(prompt_token_ids[-1])
        if self._root is not None and isinstance(text := self._root[last], str) and text:
            self._go_on_behind([last], [])
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
            self._go_on_behind(self._window, [])


class _Unknown(dict[int, None]):
    def __missing__(self, token_id: int) -> None:
        """Nothing is known, and nothing is kept."""


_UNKNOWN: Final = _Unknown()
