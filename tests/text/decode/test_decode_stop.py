"""Where outputs stop, and what is shown until then, is what vLLM's own detokenizer does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paths
import pytest
from comparison import read_vectors
from conformance import own_fingerprint
from decode_helpers import REPLACEMENT, Words, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mmroute import Normalizer
from mmroute.text import (
    StopConditions,
    StopOutput,
    StopSequenceDecoder,
    StopString,
    StopToken,
    TokenDecoder,
)

VECTORS = paths.VECTORS / "decode"
OF_CONDITIONS = (
    "stop", "stop_token_ids", "eos_token_id", "include_stop_str_in_output", "min_tokens",
)  # fmt: skip
HELLO, WORLD, TEST, EOS = 1, 2, 3, 999


def output_of(tokenizer: TokenDecoder, case: Mapping[str, Any]) -> dict[str, Any]:
    """What mmroute makes of a case, in the form of vLLM's answer."""
    conditions = StopConditions.of(**{name: case[name] for name in OF_CONDITIONS})
    decoder = StopSequenceDecoder(
        tokenizer,
        conditions,
        prompt_token_ids=case["prompt_token_ids"],
        skip_special_tokens=case["skip_special_tokens"],
    )
    deltas = []
    for step in case["steps"]:
        output = decoder.process_tokens(step)
        deltas.append(output.text)
        if output.stopped:
            break
    else:
        output = decoder.flush()
        deltas[-1] += output.text
    return {
        "deltas": deltas,
        "text": decoder.text,
        "token_ids": decoder.token_ids,
        "finish_reason": "stop" if output.stopped else "length",
        "stop_reason": output.matched,
    }


@pytest.mark.parametrize("model", sorted(path.stem for path in VECTORS.glob("*.jsonl")))
def test_vllms_answers(model: str, normalizer: Callable[[str], Normalizer]) -> None:
    meta, cases = read_vectors(VECTORS / f"{model}.jsonl")
    assert meta["fingerprint"] == own_fingerprint(model), "the vectors are of other files"
    assert len(cases) > 150
    tokenizer = normalizer(model).model.tokenizer
    wrong = [case for case in cases if output_of(tokenizer, case) != case["expect"]]
    assert not wrong


# Properties

STOPS = st.lists(st.text("aA\n \N{PARTY POPPER}" + REPLACEMENT, min_size=1, max_size=4), max_size=3)


@settings(deadline=None)
@given(data=st.data(), stops=STOPS, visible=st.booleans(), least=st.integers(0, 6))
@pytest.mark.parametrize("kind", ["byte-level", "llama", "tiktoken"])
def test_how_the_tokens_are_split_changes_nothing(
    kind: str, data: st.DataObject, stops: list[str], visible: bool, least: int
) -> None:
    tokenizer = tokenizer_of(kind)
    steps = data.draw(
        st.lists(st.lists(st.integers(0, tokenizer.max_token_id), max_size=9), max_size=5)
    )
    conditions = StopConditions(
        strings=tuple(StopString(text, visible) for text in stops),
        tokens=(StopToken(70, visible), StopToken(2, is_eos=True)),
        min_tokens=least,
    )
    one, many = (StopSequenceDecoder(tokenizer, conditions) for _ in range(2))
    for step in steps:
        outputs = [one.process_token(token_id) for token_id in step]
        output = many.process_tokens(step)
        assert output.text == "".join(each.text for each in outputs)
        assert output.stopped == one.stopped == many.stopped
    assert one.flush() == many.flush()
    assert (one.text, one.token_ids) == (many.text, many.token_ids)


@settings(deadline=None)
@given(
    data=st.data(), stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_the_output_ends_before_the_stop_that_ends_first(
    data: st.DataObject, stops: list[str]
) -> None:
    """The rule by brute force: the shortest beginning that ends with a stop."""
    tokenizer = tokenizer_of("tiktoken")
    text = data.draw(st.text("abcd", max_size=20))
    decoder = StopSequenceDecoder(tokenizer, StopConditions(tuple(map(StopString, stops))))
    shown = decoder.process_tokens(text.encode()).text + decoder.flush().text
    ends = [end for end in range(1, len(text) + 1) if text[:end].endswith(tuple(stops))]
    if not ends:
        assert (shown, decoder.token_ids) == (text, list(text.encode()))
        return
    stop = next(stop for stop in stops if text[: ends[0]].endswith(stop))
    assert shown == text[: ends[0] - len(stop)]
    assert decoder.token_ids == list(text[: ends[0]].encode())
    assert decoder.process_token(97) == StopOutput("", stopped=True, matched=stop)


@settings(deadline=None)
@given(text=st.text("ab\N{PARTY POPPER}é", max_size=20), stop=st.text("xy", min_size=1, max_size=6))
def test_as_many_characters_are_held_back_as_could_begin_a_stop(text: str, stop: str) -> None:
    decoder = StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions.of(stop=[stop]))
    decoder.process_tokens(text.encode())
    assert decoder.text == text[: max(len(text) - len(stop) + 1, 0)]
    assert decoder.flush().text == text[len(decoder.text) - len(text) :] or decoder.text == text


@settings(deadline=None)
@given(
    text=st.text("abé", max_size=9), one=st.text("abé", max_size=9), two=st.text("abé", max_size=9)
)
def test_a_copy_goes_on_by_itself(text: str, one: str, two: str) -> None:
    def decoder() -> StopSequenceDecoder:
        return StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions.of(stop=["aéb"]))

    original = decoder()
    original.process_tokens(text.encode())
    other = copy.copy(original)
    for each, end in ((original, one), (other, two)):
        alone = decoder()
        alone.process_tokens(text.encode())
        assert each.process_tokens(end.encode()) == alone.process_tokens(end.encode())
        assert each.flush() == alone.flush()
        assert (each.text, each.token_ids) == (alone.text, alone.token_ids)


# Single rules


def words(conditions: StopConditions, *token_ids: int, skip: bool = False) -> list[StopOutput]:
    decoder = StopSequenceDecoder(Words(), conditions, skip_special_tokens=skip)
    return [decoder.process_token(token_id) for token_id in token_ids]


def test_visible_and_hidden_stops_together() -> None:
    conditions = StopConditions((StopString("o w", visible=True), StopString("rld")))
    assert words(conditions, HELLO, WORLD) == [
        StopOutput("Hel"), StopOutput("lo w", stopped=True, matched="o w"),
    ]  # fmt: skip


def test_the_text_of_a_visible_stop_token_may_complete_a_stop_string() -> None:
    conditions = StopConditions(
        (StopString("<eos>", visible=True),), (StopToken(EOS, visible=True),)
    )
    assert words(conditions, EOS) == [StopOutput("<eos>", stopped=True, matched="<eos>")]


def test_flush_after_a_stop_repeats_the_match() -> None:
    decoder = StopSequenceDecoder(Words(), StopConditions.of(stop=["lo"]))
    assert decoder.process_token(HELLO) == StopOutput("Hel", stopped=True, matched="lo")
    assert decoder.flush() == StopOutput("", stopped=True, matched="lo")
    assert decoder.process_tokens([HELLO, WORLD]) == StopOutput("", stopped=True, matched="lo")
    assert decoder.token_ids == [HELLO]


def test_flush_with_half_a_character() -> None:
    half = list("a🎉".encode())[:-1]
    tokenizer = tokenizer_of("tiktoken")
    decoder = StopSequenceDecoder(tokenizer, StopConditions())
    assert decoder.process_tokens(half) == StopOutput("a")
    assert decoder.flush() == StopOutput("")
    decoder.reset()
    assert decoder.process_tokens(half) == StopOutput("a")
    assert decoder.flush("replace") == StopOutput(REPLACEMENT)
    found = StopSequenceDecoder(tokenizer, StopConditions((StopString(REPLACEMENT),)))
    found.process_tokens(half)
    assert found.flush("replace") == StopOutput("", stopped=True, matched=REPLACEMENT)


def test_reset_begins_again() -> None:
    decoder = StopSequenceDecoder(
        Words(), StopConditions.of(stop_token_ids=[EOS]), prompt_token_ids=[HELLO]
    )
    assert decoder.process_tokens([WORLD, EOS]).stopped
    decoder.reset()
    assert (decoder.stopped, decoder.text, decoder.token_ids) == (False, "", [])
    assert decoder.process_token(WORLD) == StopOutput(" world")


def test_conditions_of_a_request() -> None:
    assert StopConditions.of(stop=["a", "b"], stop_token_ids=[7], eos_token_id=EOS) == (
        StopConditions(
            (StopString("a"), StopString("b")), (StopToken(7), StopToken(EOS, is_eos=True))
        )
    )
    shown = StopConditions.of(stop=["a"], stop_token_ids=[7], include_stop_str_in_output=True)
    assert shown.strings[0].visible
    assert shown.tokens[0].visible
    assert StopConditions.of(min_tokens=2) == StopConditions(min_tokens=2)


def test_what_vllm_refuses() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        StopConditions.of(stop=["a", ""])
    with pytest.raises(ValueError, match="min_tokens must be at least 0"):
        StopConditions.of(min_tokens=-1)


def test_the_ids_kept_are_plain_numbers() -> None:
    decoder = StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions.of(stop_token_ids=[98]))
    assert decoder.process_tokens(np.array([97, 98], np.uint32)).matched == 98
    assert json.dumps(decoder.token_ids) == "[97, 98]"


def test_a_number_that_is_no_id_does_not_count() -> None:
    decoder = StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions())
    with pytest.raises(ValueError, match="not a token ID"):
        decoder.process_tokens([97, -1])
    assert (decoder.token_ids, decoder.text) == ([97], "a")
