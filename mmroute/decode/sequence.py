"""The output of one request so far."""

from __future__ import annotations

from collections import abc

from mmroute.decode.stream import DecodeStream, FlushErrors, TokenDecoder, own_copy
from mmroute.geometry import TokenIds


class Sequence:
    """The token IDs and the text that a request has generated, one token after another.

    `copy.copy` gives a sequence that goes on by itself.

    Args:
        tokenizer: who decodes.
        prompt_token_ids: the prompt, or its end; no part of the sequence.
        skip_special_tokens: give special tokens no text.

    Attributes:
        token_ids: what was appended.
    """

    def __init__(
        self,
        tokenizer: TokenDecoder,
        *,
        prompt_token_ids: abc.Sequence[int] | TokenIds = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._arguments = tokenizer, prompt_token_ids, skip_special_tokens
        self.clear()

    __copy__ = own_copy

    def clear(self) -> None:
        """Begin again behind the same prompt."""
        tokenizer, prompt, skip = self._arguments
        self._stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        self._pieces: list[str] = []
        self.token_ids: list[int] = []

    @property
    def text(self) -> str:
        """The text so far, without what may still become a character."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_token(self, token_id: int) -> str:
        """The text that one more token completes.

        Raises:
            ValueError: see `DecodeStream.step`; the token is not appended.
        """
        text = self._stream.step(token_id)
        self.token_ids.append(int(token_id))
        if text:
            self._pieces.append(text)
        return text

    def append_tokens(self, token_ids: abc.Iterable[int]) -> str:
        """The text that several more tokens complete."""
        return "".join(map(self.append_token, token_ids))

    def flush(self, errors: FlushErrors = "replace") -> str:
        """The end of the text; see `DecodeStream.flush`."""
        text = self._stream.flush(errors)
        if text:
            self._pieces.append(text)
        return text
