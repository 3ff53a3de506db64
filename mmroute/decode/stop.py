"""Stop strings and stop tokens: where output ends, and which text is safe to emit before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.decode.stream import DecodeStream, FlushErrors, TokenDecoder, own_copy
from mmroute.geometry import TokenIds


@dataclass(frozen=True, slots=True)
class StopString:
    """A text that ends the output.

    Attributes:
        text: at least one character.
        visible: it stays in the output; otherwise the output ends before it.
    """

    text: str
    visible: bool = False

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("a stop string must have at least one character")


@dataclass(frozen=True, slots=True)
class StopToken:
    """A token that ends the output; its ID stays in any case.

    Attributes:
        token_id: its ID.
        visible: its text stays in the output, unless special tokens are skipped and it is one.
        is_eos: the model's own end: it is not reported as a match.
    """

    token_id: int
    visible: bool = False
    is_eos: bool = False


@dataclass(frozen=True, slots=True)
class StopConditions:
    """What ends the output of a request.

    Attributes:
        strings: of two that end with the same character, the first is the one that matched.
        tokens: an ID that is listed as EOS too is EOS.
        min_tokens: a stop string counts only if a later token than these ends it. Stop tokens
            always count: the engine does not sample them before.
    """

    strings: tuple[StopString, ...] = ()
    tokens: tuple[StopToken, ...] = ()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens must not be negative, and is {self.min_tokens}")

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
        """From the fields of a request, by vLLM's names; all stops are visible, or none.

        Args:
            stop: texts.
            stop_token_ids: token IDs.
            eos_token_id: the model's own end; None where it is to be ignored.
            include_stop_str_in_output: what ends the output stays in its text.
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
        text: new text, which follows what earlier calls gave.
        stopped: the output has ended.
        matched: the stop string, or the ID of the stop token, that ended it. None for EOS.
    """

    text: str
    stopped: bool = False
    matched: str | int | None = None


_NOTHING: Final = StopOutput("")


class StopSequenceDecoder:
    """Decodes the output of one request until a stop string or a stop token ends it.

    Text, stops and token IDs are vLLM 0.33.0's (``v1/engine/detokenizer.py``): stop strings are
    sought in the text of the output alone, also across tokens and inside one; the one that ends
    first wins. As long as a hidden stop string may still come, one character less than the longest
    has is held back, whatever these characters are. `copy.copy` gives a decoder that goes on by
    itself.

    Args:
        tokenizer: decodes the IDs.
        conditions: what ends the output.
        prompt_token_ids: the prompt, or its end.
        skip_special_tokens: give special tokens no text.

    Attributes:
        token_ids: the output's. The token that ends it is the last, also where its text is cut.
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
        # Each with the characters of it that may stand in what was searched before.
        self._sought = tuple((stop, stop.text, len(stop.text) - 1) for stop in conditions.strings)
        self._remember = max((overlap for _, _, overlap in self._sought), default=0)
        hidden = (overlap for stop, _, overlap in self._sought if not stop.visible)
        self._hold_back = max(hidden, default=0)
        self.reset()

    __copy__ = own_copy

    def reset(self) -> None:
        """Begin again, behind the same prompt."""
        tokenizer, prompt, skip = self._arguments
        self._stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        self.token_ids: list[int] = []
        self._pieces: list[str] = []
        self._tail = ""  # the end of the text, as far as a stop string may begin in it
        self._held = 0  # the number of characters of the tail that were not emitted yet
        self._ended: StopOutput | None = None

    @property
    def text(self) -> str:
        """All that was shown."""
        return "".join(self._pieces)

    @property
    def stopped(self) -> bool:
        """The output has ended: what is processed now is ignored."""
        return self._ended is not None

    def process_token(self, token_id: int) -> StopOutput:
        """One more token of the output. After the end: no text, and the same match again.

        Raises:
            ValueError: see `DecodeStream.step`; the token does not count.
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
        """Several more tokens, as an engine step gives them; those behind the end are ignored."""
        texts = []
        output = self._ended or _NOTHING
        for token_id in token_ids:
            output = self.process_token(token_id)
            texts.append(output.text)
            if output.stopped:
                break
        return StopOutput("".join(texts), output.stopped, output.matched)

    def flush(self, errors: FlushErrors = "drop") -> StopOutput:
        """The end of an output that nothing stopped: the text that was held back.

        Args:
            errors: what becomes of a character that is not complete: ``drop``, as in vLLM, or
                ``replace``.
        """
        if self._ended is not None:
            return self._ended
        return self._advance(self._stream.flush(errors), StopOutput(""))

    def _advance(self, new: str, final: StopOutput | None = None) -> StopOutput:
        """Show what may be shown of the held and the new text; all of it where it is `final`."""
        text = self._tail + new
        shown = len(self._tail) - self._held
        found = None
        if new and len(self.token_ids) > self._conditions.min_tokens:
            found = _first_to_end(self._sought, text, len(self._tail))
        if found is not None:
            stop, end = found
            until = end if stop.visible else end - len(stop.text)
            final = StopOutput("", stopped=True, matched=stop.text)
        elif final is not None:
            until = len(text)
        else:
            until = max(len(text) - self._hold_back, shown)
        self._tail = text[-self._remember :] if self._remember else ""
        self._held = len(text) - until
        given = text[shown:until]
        if given:
            self._pieces.append(given)
        if final is None:
            return StopOutput(given)
        if final.stopped:
            self._ended = final
        return StopOutput(given, final.stopped, final.matched)


def _first_to_end(
    sought: Iterable[tuple[StopString, str, int]], text: str, searched: int
) -> tuple[StopString, int] | None:
    """The stop string that ends first behind what was searched before, and where it ends."""
    first: tuple[StopString, int] | None = None
    for stop, wanted, overlap in sought:
        at = text.find(wanted, searched - overlap if searched > overlap else 0)
        if at >= 0 and (first is None or at + overlap < first[1] - 1):
            first = stop, at + overlap + 1
    return first
