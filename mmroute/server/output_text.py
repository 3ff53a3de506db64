"""From the token IDs of an answer to its text.

Source: vLLM 0.33.0 ``renderers/online_derenderer.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmroute.decode import DecodeStream, StopConditions, StopSequenceDecoder, StopString
from mmroute.server.derender_protocol import DerenderStreamState, GeneratedChoice
from mmroute.server.errors import require
from mmroute.server.protocol import RenderRequest
from mmroute.tokenizers import Tokenizer

__all__ = [
    "HARMONY", "LONGEST_SEED", "OutputRules", "first_state", "next_text", "output_rules",
    "output_text", "without_stop_token",
]  # fmt: skip

HARMONY: Final = "Harmony"
"""The parser that vLLM always uses for answers of gpt-oss."""
LONGEST_SEED: Final = 7
"""The number of IDs at the end of a prompt that can change the text of an answer."""
_WINDOW: Final = 5
_PARSERS: Final = frozenset({"--reasoning-parser", "--tool-call-parser"})


@dataclass(frozen=True, slots=True, eq=False)
class OutputRules:
    """What a model's files and its engine's options say about answers.

    Attributes:
        eos: the end-of-sequence token of the tokenizer; None if it has none. The engine stops at
            it without reporting a stop reason.
        ends: the other token IDs at which the engine stops; it reports them as stop reason.
        parser: the parsers by which the engine reads the answers to chats; empty for none.
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
        HARMONY if config.get("model_type") == "gpt_oss"
        else ", ".join(sorted(_PARSERS.intersection(without_effect))),
    )  # fmt: skip


def without_stop_token(
    choice: GeneratedChoice, asked: RenderRequest, rules: OutputRules
) -> tuple[Sequence[int], int | str | None]:
    """The IDs of an answer, or of a part of one, without a stop token at its end; the stop reason.

    An engine reports no stop reason for its EOS, and older engines report none for any token. Then
    the last ID tells whether a stop token ended the answer.
    """
    ids, reason = choice.token_ids or [], choice.stop_reason
    if choice.finish_reason != "stop" or isinstance(reason, str) or not ids:
        return ids, reason
    last, stopped = ids[-1], ids[-1] == reason
    if reason is None:
        stopped = last == rules.eos and not asked.ignore_eos
        ends = {*(asked.stop_token_ids or ()), *(() if asked.ignore_eos else rules.ends)}
        if not stopped and last in ends:
            stopped, reason = True, last
    return ids[:-1] if stopped and not asked.include_stop_str_in_output else ids, reason


def output_text(
    tokenizer: Tokenizer,
    rules: OutputRules,
    choice: GeneratedChoice,
    asked: RenderRequest,
    *,
    prompt: Sequence[int],
    skip_special_tokens: bool,
) -> tuple[str, int | str | None]:
    """The text of a whole answer, and its stop reason.

    Args:
        tokenizer: of the model.
        rules: of the model.
        choice: the answer.
        asked: the request that it answers.
        prompt: the last token IDs of the prompt; without them a first space may be missing.
        skip_special_tokens: leave special tokens out of the text.
    """
    ids, reason = without_stop_token(choice, asked, rules)
    texts = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    if choice.finish_reason != "stop" or isinstance(choice.stop_reason, int):
        texts = []
    elif choice.stop_reason is not None:
        texts = [choice.stop_reason]
    visible = asked.include_stop_str_in_output
    strings = tuple(StopString(text, visible) for text in texts if text)
    decoder = StopSequenceDecoder(
        tokenizer,
        StopConditions(strings, min_tokens=max(asked.min_tokens, 0)),
        prompt_token_ids=prompt,
        skip_special_tokens=skip_special_tokens,
    )
    found = decoder.process_tokens(_known(tokenizer, ids))
    if found.stopped:
        return decoder.text, found.matched
    decoder.flush("drop")
    return decoder.text, reason


def next_text(
    tokenizer: Tokenizer,
    state: DerenderStreamState,
    ids: Sequence[int],
    *,
    skip_special_tokens: bool,
) -> str:
    """The text that more token IDs complete; `state` is changed to that behind them.

    The tokens of a state are those whose text was given last, and behind them those that make no
    whole character yet. The empty token stands for an ID outside the vocabulary.

    Raises:
        ApiError: 400: a token of the state is not in the vocabulary.
    """
    tokens = state.prev_tokens[state.prefix_offset :]
    window = [tokenizer.token_id(token) if token else tokenizer.vocab_size for token in tokens]
    require(None not in window, "invalid stream_state: derender failed")
    known = [token_id for token_id in window if token_id is not None]
    read = max(state.read_offset - state.prefix_offset, 0)
    given, held = known[:read], known[read:]
    stream = DecodeStream(
        tokenizer, prompt_token_ids=given, skip_special_tokens=skip_special_tokens
    )
    stream.step_batch(held)
    texts = []
    hidden = _hidden(tokenizer, skip_special_tokens=skip_special_tokens)
    for token_id in _known(tokenizer, ids):
        if token_id in hidden:
            continue
        held.append(token_id)
        if text := stream.step(token_id):
            texts.append(text)
            given, held = held, []
    _show(tokenizer, state, given, held)
    return "".join(texts)


def first_state(
    tokenizer: Tokenizer, prompt: Sequence[int], *, skip_special_tokens: bool
) -> DerenderStreamState:
    """The state before the first token of an answer, behind the end of a prompt."""
    hidden = _hidden(tokenizer, skip_special_tokens=skip_special_tokens)
    state = DerenderStreamState()
    given = [token_id for token_id in _known(tokenizer, prompt) if token_id not in hidden]
    _show(tokenizer, state, given[-_WINDOW:], [])
    return state


def _show(
    tokenizer: Tokenizer, state: DerenderStreamState, given: Sequence[int], held: Sequence[int]
) -> None:
    state.prev_tokens = [tokenizer.token(token_id) or "" for token_id in (*given, *held)]
    state.prefix_offset, state.read_offset = 0, len(given)


def _known(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    """The IDs, those outside the vocabulary replaced by the first ID behind it."""
    return [min(token_id, tokenizer.vocab_size) for token_id in ids]


def _hidden(tokenizer: Tokenizer, *, skip_special_tokens: bool) -> frozenset[int]:
    return frozenset(tokenizer.special_tokens.values() if skip_special_tokens else ())
