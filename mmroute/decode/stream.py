"""Incremental decoding: the text that each token ID adds."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol

from mmroute.geometry import TokenIds
from mmroute.tokenizers.pieces import Pieces

__all__ = ["DecodeStream", "FlushErrors", "TokenDecoder"]

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
    """What is needed of a tokenizer.

    A tokenizer may also have an attribute `pieces` (`mmroute.tokenizers.pieces.Pieces`, or None):
    then most tokens are looked up instead of decoded.
    """

    @property
    def max_token_id(self) -> int:
        """The largest ID of the vocabulary, added tokens included."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of token IDs; an ID within the vocabulary that names no token has no text."""


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
    held because they do not make a character.

    Args:
        tokenizer: who decodes.
        prompt_token_ids: the prompt, or its end; IDs outside the vocabulary have no text.
        skip_special_tokens: give special tokens no text.
    """

    __slots__ = ("_letter", "_prefix", "_read", "_settled", "_skip", "_texts", "_tokenizer",
                 "_window")  # fmt: skip

    def __init__(
        self,
        tokenizer: TokenDecoder,
        *,
        prompt_token_ids: Sequence[int] | TokenIds = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._texts: Mapping[int, str | None] = _NO_TEXTS
        self._letter: tuple[int, str] | None = None
        pieces: Pieces | None = getattr(tokenizer, "pieces", None)
        if pieces is not None:
            self._texts = texts = pieces.texts(skip_special_tokens=skip_special_tokens)
            self._letter = texts.letter
        # What is decoded together: `read` tokens whose text, `prefix`, was given, then those held.
        self._window: list[int] = []
        self._read = 0
        self._prefix: str | None = ""  # None: not decoded yet
        # All was given, and it is not nothing: behind it a token's own text is what it adds.
        self._settled = False
        if len(prompt_token_ids):
            self._seed(prompt_token_ids)

    def step(self, token_id: int) -> str:
        """The text that one more token completes; empty if there is none yet.

        An ID above the vocabulary's has no text, as in vLLM.

        Raises:
            ValueError: an ID that no engine can give: below 0, or above 2**32 - 1.
        """
        text = self._texts[token_id]
        if text is not None and self._settled:
            return text
        return self._decode_next(token_id)

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
        self._settled = False
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
        if self._letter is None:
            self._window, self._read, self._prefix = given + held, len(given), None
        else:  # a letter is as good a neighbour as they are, and known
            self._window, self._read, self._prefix = [self._letter[0], *held], 1, self._letter[1]
        self._settled = not held

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
        if self._texts[last]:
            self._go_on_behind([last], [])
            return
        largest = self._tokenizer.max_token_id
        count = _TAIL
        while True:
            tail = [int(token_id) for token_id in prompt_token_ids[-count:]]
            tail = [token_id for token_id in tail if 0 <= token_id <= largest]
            text = self._decode(tail)
            if text and not text.endswith(_REPLACEMENT):
                self._go_on_behind(tail, [])
                return
            if count >= len(prompt_token_ids):
                break
            count *= 2
        self._window, self._read, self._prefix = tail, len(tail), text


class _NoTexts(dict[int, str | None]):
    def __missing__(self, token_id: int) -> None:
        """Nothing is known, and nothing is kept."""


_NO_TEXTS: Final = _NoTexts()
