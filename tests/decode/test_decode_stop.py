"""Where outputs stop, and what is shown until then, is what vLLM's own detokenizer does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import generate_decode
import numpy as np
import paths
import pytest
from comparison import read_vectors
from conformance import own_fingerprint
from decode_cases import output_of
from decode_helpers import REPLACEMENT, Words, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import real_models

from mmroute import Normalizer
from mmroute.decode import (
    StopConditions,
    StopOutput,
    StopSequenceDecoder,
    StopString,
    StopToken,
    TokenDecoder,
)

VECTORS = paths.VECTORS / "decode"
HELLO, WORLD, TEST, EOS = 1, 2, 3, 999


@pytest.mark.parametrize("model", generate_decode.MODELS)
def test_vllms_answers(model: str, normalizer: Callable[[str], Normalizer]) -> None:
    meta, cases = read_vectors(VECTORS / f"{model}.jsonl")
    assert meta["fingerprint"] == own_fingerprint(model), "the vectors are of other files"
    assert len(cases) > 150
    tokenizer = normalizer(model).model.tokenizer
    wrong = [case for case in cases if output_of(tokenizer, case) != case["expect"]]
    assert not wrong


# Properties

STOPS = st.lists(st.text("aA\n \N{PARTY POPPER}" + REPLACEMENT, min_size=1, max_size=4), max_size=3)


@settings(deadline=None, max_examples=12)
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


@settings(deadline=None, max_examples=12)
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


@settings(deadline=None, max_examples=12)
@given(text=st.text("ab\N{PARTY POPPER}é", max_size=20), stop=st.text("xy", min_size=1, max_size=6))
def test_as_many_characters_are_held_back_as_could_begin_a_stop(text: str, stop: str) -> None:
    decoder = StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions.of(stop=[stop]))
    decoder.process_tokens(text.encode())
    assert decoder.text == text[: max(len(text) - len(stop) + 1, 0)]
    assert decoder.flush().text == text[len(decoder.text) - len(text) :] or decoder.text == text


@settings(deadline=None, max_examples=12)
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


def test_a_hidden_stop_token() -> None:
    ended = StopOutput("", stopped=True, matched=EOS)
    assert words(StopConditions(tokens=(StopToken(EOS),)), HELLO, EOS, WORLD) == [
        StopOutput("Hello"), ended, ended,
    ]  # fmt: skip


def test_a_visible_stop_token() -> None:
    conditions = StopConditions(tokens=(StopToken(EOS, visible=True),))
    assert words(conditions, EOS) == [StopOutput("<eos>", stopped=True, matched=EOS)]
    assert words(conditions, EOS, skip=True) == [StopOutput("", stopped=True, matched=EOS)]


def test_eos_is_no_match() -> None:
    conditions = StopConditions(tokens=(StopToken(EOS, is_eos=True), StopToken(EOS)))
    assert words(conditions, EOS) == [StopOutput("", stopped=True, matched=None)]


def test_a_hidden_stop_string() -> None:
    conditions = StopConditions((StopString("Hello world"),))
    ended = StopOutput("", stopped=True, matched="Hello world")
    assert words(conditions, HELLO, WORLD, TEST) == [StopOutput(""), ended, ended]
    assert words(conditions, TEST, HELLO, WORLD) == [
        StopOutput(""), StopOutput(""), StopOutput("test ", stopped=True, matched="Hello world"),
    ]  # fmt: skip


def test_a_visible_stop_string_is_not_waited_for() -> None:
    conditions = StopConditions((StopString("Hello world", visible=True),))
    assert words(conditions, HELLO, WORLD) == [
        StopOutput("Hello"), StopOutput(" world", stopped=True, matched="Hello world"),
    ]  # fmt: skip


def test_visible_and_hidden_stops_together() -> None:
    conditions = StopConditions((StopString("o w", visible=True), StopString("rld")))
    assert words(conditions, HELLO, WORLD) == [
        StopOutput("Hel"), StopOutput("lo w", stopped=True, matched="o w"),
    ]  # fmt: skip


def test_a_stop_token_lets_go_what_was_held() -> None:
    conditions = StopConditions((StopString("NEVER_MATCH"),), (StopToken(EOS),))
    assert words(conditions, HELLO, EOS) == [
        StopOutput(""), StopOutput("Hello", stopped=True, matched=EOS),
    ]  # fmt: skip


def test_the_text_of_a_visible_stop_token_may_complete_a_stop_string() -> None:
    conditions = StopConditions(
        (StopString("<eos>", visible=True),), (StopToken(EOS, visible=True),)
    )
    assert words(conditions, EOS) == [StopOutput("<eos>", stopped=True, matched="<eos>")]


def test_flush_gives_what_was_held() -> None:
    decoder = StopSequenceDecoder(Words(), StopConditions.of(stop=["NEVER_MATCH"]))
    assert decoder.process_token(HELLO) == StopOutput("")
    assert (decoder.text, decoder.stopped) == ("", False)
    assert decoder.flush() == StopOutput("Hello")
    assert decoder.text == "Hello"


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


@pytest.mark.parametrize("stop", [" ×", "Δ", "°", " (∆", " –", "€", "中", "🚀", "💡"])  # noqa: RUF001 - are what is tried
def test_stops_of_several_bytes(stop: str) -> None:
    decoder = StopSequenceDecoder(tokenizer_of("tiktoken"), StopConditions.of(stop=[stop]))
    output = decoder.process_tokens(f"aéb{stop}c".encode())
    assert output == StopOutput("aéb", stopped=True, matched=stop)


if (ROOT := real_models()) is not None:
    IDS = [9707, 1879, 11, 45537, 1588]  # "Hello world, STOP here"
    PARTY = [87, 11162, 236, 231, 379]  # "x 🎉 y"

    @pytest.fixture(scope="module")
    def qwen() -> TokenDecoder:
        assert ROOT is not None
        return Normalizer.from_pretrained(ROOT / "qwen2.5-vl-3b-instruct").model.tokenizer

    def outcome(
        tokenizer: TokenDecoder, ids: list[int], size: int = 1, **case: Any
    ) -> tuple[list[str], object, int]:
        answer = output_of(tokenizer, {
            "prompt_token_ids": [], "stop": [], "stop_token_ids": [], "eos_token_id": None,
            "include_stop_str_in_output": False, "min_tokens": 0, "skip_special_tokens": True,
            "steps": [ids[at : at + size] for at in range(0, len(ids), size)], **case,
        })  # fmt: skip
        return answer["deltas"], answer["stop_reason"], len(answer["token_ids"])

    @pytest.mark.models
    def test_the_observed_stops_of_a_real_tokenizer(qwen: TokenDecoder) -> None:
        def stopped(*stops: str, size: int = 1, **case: Any) -> tuple[list[str], object, int]:
            return outcome(qwen, IDS, size, stop=list(stops), **case)

        include = {"include_stop_str_in_output": True}
        assert stopped("STOP") == (["He", "llo wo", "r", "ld, "], "STOP", 4)
        assert stopped("STOP", **include) == (["Hello", " world", ",", " STOP"], "STOP", 4)
        assert stopped(" wor") == (["He", "llo"], " wor", 2)
        assert stopped(" wor", **include) == (["Hello", " wor"], " wor", 2)
        assert stopped("here", "world", size=5) == (["Hello "], "world", 2)
        assert stopped("lo world", "world", size=5) == (["Hel"], "lo world", 2)
        assert stopped("world", "lo world", size=5) == (["Hello "], "world", 2)
        assert stopped("XXXXXX") == (["", "Hello ", "w", "orld,", " STOP here"], None, 5)
        assert stopped("world", min_tokens=1)[1] == "world"
        assert stopped("world", min_tokens=2)[1] is None
        assert stopped("world", min_tokens=3)[1] is None
        assert outcome(qwen, PARTY, stop=["🎉"]) == (["x", "", "", " "], "🎉", 4)

    @pytest.mark.models
    def test_the_observed_stop_tokens_of_a_real_tokenizer(qwen: TokenDecoder) -> None:
        def ended(**case: Any) -> tuple[list[str], object, int]:
            return outcome(qwen, [13048, 151645], stop_token_ids=[151645], **case)

        include = {"include_stop_str_in_output": True}
        assert ended() == (["Hi", ""], 151645, 2)
        assert ended(**include) == (["Hi", ""], 151645, 2)
        assert ended(**include, skip_special_tokens=False) == (["Hi", "<|im_end|>"], 151645, 2)
