"""The token IDs and the text that one request has generated so far."""

from __future__ import annotations

from collections import abc

from mmroute.text.stream import DecodeStream, FlushErrors, TokenDecoder, own_copy
from mmroute.token_ids import TokenIds


class Sequence:
    """The token IDs and the text that a request has generated, one token after another.

    `copy.copy` makes an independent sequence, which continues from the same state.

    Args:
        tokenizer: the tokenizer that decodes.
        prompt_token_ids: the prompt, or its end; it is not part of the sequence.
        skip_special_tokens: whether to leave the texts of special tokens out.

    Attributes:
        token_ids: the token IDs that were appended.
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
        """Remove all tokens, and begin again after the same prompt."""
        tokenizer, prompt, skip = self._arguments
        self._stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        self._pieces: list[str] = []
        self.token_ids: list[int] = []

    @property
    def text(self) -> str:
        """The text so far, without the bytes of a character that is still incomplete."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_token(self, token_id: int) -> str:
        """Append a token; the text that it completes.

        Raises:
            ValueError: see `DecodeStream.step`; the token is not appended.
        """
        text = self._stream.step(token_id)
        self.token_ids.append(int(token_id))
        if text:
            self._pieces.append(text)
        return text

    def append_tokens(self, token_ids: abc.Iterable[int]) -> str:
        """Append several tokens, and return the text that they complete."""
        return "".join(map(self.append_token, token_ids))

    def flush(self, errors: FlushErrors = "replace") -> str:
        """The end of the text; see `DecodeStream.flush`."""
        text = self._stream.flush(errors)
        if text:
            self._pieces.append(text)
        return text
