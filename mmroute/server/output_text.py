"""From the token IDs of an answer to its text.

Source: vLLM 0.33.0 ``renderers/online_derenderer.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mmroute.decode import DecodeStream, StopConditions, StopSequenceDecoder, StopString
from mmroute.tokenizers import Tokenizer

__all__ = [
    "LONGEST_SEED",
    "Ending",
    "OutputRules",
    "Window",
    "continued",
    "output_rules",
    "output_text",
]

LONGEST_SEED: Final = 7
"""So many IDs of a prompt are looked at."""
_WINDOW: Final = 5
_PARSERS: Final = frozenset({"--reasoning-parser", "--tool-call-parser"})


@dataclass(frozen=True, slots=True, eq=False)
class OutputRules:
    """What a model's files and its engine's options say about answers.

    Attributes:
        eos: the token that ends one, and is not reported.
        ends: those that end one, and are.
        parser: what the engine makes of a chat's answer beside text; empty for nothing.
    """

    eos: int | None
    ends: frozenset[int]
    parser: str


def output_rules(
    tokenizer: Tokenizer,
    tokenizer_config: Mapping[str, Any],
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    without_effect: Sequence[str],
) -> OutputRules:
    """The rules of a model.

    Args:
        tokenizer: of the model.
        tokenizer_config: its ``tokenizer_config.json``; Mistral's own tokenizers have none.
        config: its ``config.json``.
        generation_config: its ``generation_config.json``; empty if there is none.
        without_effect: options of the engine that change no prompt.
    """
    token = tokenizer_config.get("eos_token", "</s>" if not tokenizer_config else None)
    token = token.get("content") if isinstance(token, Mapping) else token
    source = generation_config or {**config.get("text_config", {}), **config}
    ends = source.get("eos_token_id")
    return OutputRules(
        tokenizer.token_id(token) if isinstance(token, str) else None,
        frozenset(ends if isinstance(ends, list) else () if ends is None else (ends,)),
        "Harmony" if config.get("model_type") == "gpt_oss"
        else ", ".join(sorted(_PARSERS.intersection(without_effect))),
    )  # fmt: skip


class Ending(NamedTuple):
    """How an answer ended, and what its request says about that.

    Attributes:
        finish_reason: as the engine reports it.
        stop_reason: likewise.
        stop: texts that end an answer.
        stop_token_ids: likewise.
        min_tokens: texts end it behind so many tokens only.
        ignore_eos: the model's own tokens do not end it.
        visible: what ended it stays.
    """

    finish_reason: str | None
    stop_reason: int | str | None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    visible: bool = False

    def without_stop_token(
        self, ids: Sequence[int], rules: OutputRules
    ) -> tuple[Sequence[int], int | str | None]:
        """The IDs that have a text, and what ended the answer.

        An engine reports no reason for its EOS, and older ones none at all: then the last ID is
        looked at.
        """
        reason = self.stop_reason
        if self.finish_reason != "stop" or isinstance(reason, str) or not ids:
            return ids, reason
        last = ids[-1]
        if reason is None:
            ends = self.stop_token_ids if self.ignore_eos else {*self.stop_token_ids, *rules.ends}
            if last == rules.eos and not self.ignore_eos:
                stopped = True
            elif stopped := last in ends:
                reason = last
        else:
            stopped = last == reason
        return ids[:-1] if stopped and not self.visible else ids, reason


def output_text(
    tokenizer: Tokenizer,
    rules: OutputRules,
    ids: Sequence[int],
    ending: Ending,
    *,
    prompt: Sequence[int],
    skip_special_tokens: bool,
) -> tuple[str, int | str | None]:
    """The text of a whole answer, and what ended it.

    Args:
        tokenizer: of the model.
        rules: of the model.
        ids: all of the answer's.
        ending: of the answer.
        prompt: the end of its token IDs; without them a first space may be missing.
        skip_special_tokens: give special tokens no text.
    """
    ids, reason = ending.without_stop_token(ids, rules)
    stop: Sequence[str] = ()
    if ending.finish_reason == "stop" and not isinstance(ending.stop_reason, int):
        reported = ending.stop_reason
        stop = ending.stop if reported is None else (reported,)
    strings = tuple(StopString(text, ending.visible) for text in stop if text)
    decoder = StopSequenceDecoder(
        tokenizer,
        StopConditions(strings, min_tokens=max(ending.min_tokens, 0)),
        prompt_token_ids=prompt,
        skip_special_tokens=skip_special_tokens,
    )
    found = decoder.process_tokens(min(token_id, tokenizer.vocab_size) for token_id in ids)
    if not found.stopped:
        decoder.flush("drop")
    return decoder.text, found.matched if found.stopped else reason


class Window(NamedTuple):
    """The end of a text that is decoded part by part.

    Attributes:
        ids: tokens whose text was given, and behind them those that make no character yet.
        read: how many were given.
    """

    ids: Sequence[int] = ()
    read: int = 0

    @classmethod
    def behind(cls, tokenizer: Tokenizer, prompt: Sequence[int], *, skip: bool) -> Window:
        """The window before the first token of an answer."""
        hidden = set(tokenizer.special_tokens.values()) if skip else set[int]()
        ids = [token_id for token_id in prompt if token_id not in hidden]
        return cls(ids[-_WINDOW:], len(ids[-_WINDOW:]))


def continued(
    tokenizer: Tokenizer, window: Window, ids: Sequence[int], *, skip: bool
) -> tuple[str, Window]:
    """The text that more tokens complete, and the window behind them."""
    given, held = list(window.ids[: window.read]), list(window.ids[window.read :])
    hidden = set(tokenizer.special_tokens.values()) if skip else set[int]()
    stream = DecodeStream(tokenizer, prompt_token_ids=given, skip_special_tokens=skip)
    stream.step_batch(held)
    texts = []
    for token_id in ids:
        if token_id in hidden:
            continue
        held.append(min(token_id, tokenizer.vocab_size))  # which has no text, as all above it
        if text := stream.step(held[-1]):
            texts.append(text)
            given, held = held, []
    return "".join(texts), Window(given + held, len(given))
