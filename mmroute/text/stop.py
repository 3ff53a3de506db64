"""Stop strings and stop tokens: where the output ends, and which text can be shown before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.text.stream import DecodeStream, FlushErrors, TokenDecoder, own_copy
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class StopString:
    """A text that ends the output.

    Attributes:
        text: the stop string, of at least one character.
        visible: whether the text stays in the output; otherwise the output ends before it.
    """

    text: str
    visible: bool = False

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("a stop string must have at least one character")


@dataclass(frozen=True, slots=True)
class StopToken:
    """A token that ends the output; its ID stays in the output in any case.

    Attributes:
        token_id: the token's ID.
        visible: whether the token's text stays in the output. It never does if the token is
            special and special tokens are skipped.
        is_eos: whether this is the model's own EOS token, which is not reported as a match.
    """

    token_id: int
    visible: bool = False
    is_eos: bool = False


@dataclass(frozen=True, slots=True)
class StopConditions:
    """The stop strings and stop tokens that end the output of a request.

    Attributes:
        strings: the stop strings. If two end with the same character of the output, the first in
            this order is reported as the match.
        tokens: the stop tokens. An ID that is listed as EOS, too, counts as EOS.
        min_tokens: the number of first tokens in which stop strings are ignored. Stop tokens
            always count, because the engine does not sample them before.
    """

    strings: tuple[StopString, ...] = ()
    tokens: tuple[StopToken, ...] = ()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens must be at least 0, found {self.min_tokens}")

    @classmethod
    def of(
        cls,
        *,
        stop: Iterable[str] = (),
        stop_token_ids: Iterable[int] = (),
        eos_token_id: int | None = None,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
    ) -> StopConditions:
        """The conditions for the fields of a request, which have vLLM's names.

        Args:
            stop: the stop strings.
            stop_token_ids: the IDs of stop tokens.
            eos_token_id: the ID of the model's own EOS token; None if it is to be ignored.
            include_stop_str_in_output: whether the texts of all stops stay in the output.
            min_tokens: see the attribute.

        Raises:
            ValueError: a text is empty, or `min_tokens` is negative.
        """
        visible = include_stop_str_in_output
        tokens = [StopToken(token_id, visible) for token_id in stop_token_ids]
        if eos_token_id is not None:
            tokens.append(StopToken(eos_token_id, visible, is_eos=True))
        strings = tuple(StopString(text, visible) for text in stop)
        return cls(strings, tuple(tokens), min_tokens)


@dataclass(frozen=True, slots=True)
class StopOutput:
    """The result of one call of `StopSequenceDecoder`.

    Attributes:
        text: the new text, which follows the texts of earlier calls.
        stopped: whether the output has ended.
        matched: the stop string, or the ID of the stop token, that ended the output; None for EOS.
    """

    text: str
    stopped: bool = False
    matched: str | int | None = None


_NOTHING: Final = StopOutput("")


class StopSequenceDecoder:
    """Decodes the output of one request until a stop string or a stop token ends it.

    Text, stops and token IDs are those of vLLM (``v1/engine/detokenizer.py``). Stop strings
    are searched for in the text of the output, not of the prompt. They may begin and end inside
    tokens. The one that ends first wins. While a hidden stop string may still come, the last
    characters are held back: one fewer than the longest stop string has, whatever they are.

    `copy.copy` makes an independent decoder, which continues from the same state.

    Args:
        tokenizer: the tokenizer that decodes.
        conditions: the conditions that end the output.
        prompt_token_ids: the prompt, or its end.
        skip_special_tokens: whether to leave the texts of special tokens out.

    Attributes:
        token_ids: the IDs of the output. The token that ends it is the last one, even if its text
            is cut.
    """

    def __init__(
        self,
        tokenizer: TokenDecoder,
        conditions: StopConditions,
        *,
        prompt_token_ids: Sequence[int] | TokenIds = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._arguments = tokenizer, prompt_token_ids, skip_special_tokens
        self._conditions = conditions
        by_id = sorted(conditions.tokens, key=lambda token: token.is_eos)
        self._stop_tokens = {token.token_id: token for token in by_id}
        # Each with the number of its characters that may stand in text already searched.
        self._sought = tuple((stop, stop.text, len(stop.text) - 1) for stop in conditions.strings)
        self._remember = max((overlap for _, _, overlap in self._sought), default=0)
        hidden = (overlap for stop, _, overlap in self._sought if not stop.visible)
        self._hold_back = max(hidden, default=0)
        self.reset()

    __copy__ = own_copy

    def reset(self) -> None:
        """Remove all tokens, and begin again after the same prompt."""
        tokenizer, prompt, skip = self._arguments
        self._stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        self.token_ids: list[int] = []
        self._pieces: list[str] = []
        self._tail = ""  # the end of the text, in which a stop string may begin
        self._held = 0  # the number of the tail's characters that are not shown yet
        self._ended: StopOutput | None = None

    @property
    def text(self) -> str:
        """All text that was shown."""
        return "".join(self._pieces)

    @property
    def stopped(self) -> bool:
        """Whether the output has ended; further tokens are ignored then."""
        return self._ended is not None

    def process_token(self, token_id: int) -> StopOutput:
        """Process one more token. After the end the result has no text, and the same match.

        Raises:
            ValueError: see `DecodeStream.step`; the token is ignored.
        """
        if self._ended is not None:
            return self._ended
        stop_token = self._stop_tokens.get(token_id)
        hidden = stop_token is not None and not stop_token.visible
        new = "" if hidden else self._stream.step(token_id)
        self.token_ids.append(int(token_id))
        if stop_token is None:
            return self._advance(new) if new else _NOTHING
        reported = None if stop_token.is_eos else stop_token.token_id
        return self._advance(new, StopOutput("", stopped=True, matched=reported))

    def process_tokens(self, token_ids: Iterable[int]) -> StopOutput:
        """Process the tokens of one step of the engine. Tokens after the end are ignored."""
        texts = []
        output = self._ended or _NOTHING
        for token_id in token_ids:
            output = self.process_token(token_id)
            texts.append(output.text)
            if output.stopped:
                break
        return StopOutput("".join(texts), output.stopped, output.matched)

    def flush(self, errors: FlushErrors = "drop") -> StopOutput:
        """End an output that no stop has ended; the text that was held back.

        Args:
            errors: ``drop`` leaves an incomplete character out, as vLLM does; ``replace`` shows it
                as U+FFFD.
        """
        if self._ended is not None:
            return self._ended
        return self._advance(self._stream.flush(errors), StopOutput(""))

    def _advance(self, new: str, final: StopOutput | None = None) -> StopOutput:
        """Show as much of the held and the new text as is safe; all of it if `final` is given."""
        text = self._tail + new
        shown = len(self._tail) - self._held
        first = None
        if new and len(self.token_ids) > self._conditions.min_tokens:
            first = _first_to_end(self._sought, text, len(self._tail))
        if first is not None:
            stop, end = first
            until = end if stop.visible else end - len(stop.text)
            final = StopOutput("", stopped=True, matched=stop.text)
        elif final is not None:
            until = len(text)
        else:
            until = max(len(text) - self._hold_back, shown)
        self._tail = text[-self._remember :] if self._remember else ""
        self._held = len(text) - until
        shown_text = text[shown:until]
        if shown_text:
            self._pieces.append(shown_text)
        if final is None:
            return StopOutput(shown_text)
        if final.stopped:
            self._ended = final
        return StopOutput(shown_text, final.stopped, final.matched)


def _first_to_end(
    sought: Iterable[tuple[StopString, str, int]], text: str, searched: int
) -> tuple[StopString, int] | None:
    """The stop string that ends first after the text already searched, and the index of its end."""
    first: tuple[StopString, int] | None = None
    for stop, wanted, overlap in sought:
        at = text.find(wanted, searched - overlap if searched > overlap else 0)
        if at >= 0 and (first is None or at + overlap < first[1] - 1):
            first = stop, at + overlap + 1
    return first
