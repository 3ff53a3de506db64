"""Streams of token IDs give the text of the whole, in the pieces the engine gives."""

from __future__ import annotations

import copy
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from decode_helpers import (
    KINDS,
    REPLACEMENT,
    TAKE_BACK,
    BackendDecoder,
    TiktokenDecoder,
    tokenizer_of,
)
from small_vocabularies import written
from tokenizers.decoders import DecodeStream as Reference

from mmroute.text import DecodeStream, Sequence, TokenDecoder
from mmroute.text.pieces import PieceTexts, pieces_of
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

RUNS = 40
BOTH = pytest.mark.parametrize("pieces", [True, False], ids=["looked up", "decoded"])


A, A_BYTE = 292, 32  # "A" of the small Llama and the byte-level vocabularies
# A stray byte, half a character, what stands for one, and text before each of them.
BROKEN = [b"\x80", b"\xf0\x9f", "\ufffd".encode(), "🎉".encode() + b"\xf0", b"a\xf0"]


@cache
def the() -> int:
    """The small Llama's " the", of which a decoder strips the space where a text begins with it."""
    tokenizer = tokenizer_of("llama")
    texts = (tokenizer.decode([A, i], skip_special_tokens=True) for i in range(620))
    return list(texts).index("A the")


def token_ids(draw: Random, tokenizer: TokenDecoder, at_least: int = 0) -> list[int]:
    """Any IDs, and often those of the alphabet and the bytes."""
    largest = tokenizer.max_token_id
    ranges = [(0, largest), (0, min(largest, 300))]
    if largest > 1300:
        ranges.append((1000, 1300))  # tekken's bytes
    length = draw.choice([at_least, 1, 2, 3, 5, 8, 13, 30])
    return [draw.randint(*draw.choice(ranges)) for _ in range(length)]


def streamed(stream: DecodeStream, ids: list[int]) -> str:
    return "".join([*map(stream.step, ids), stream.flush()])


def takes_back(tokenizer: TokenDecoder, ids: list[int], *, skip: bool) -> bool:
    """Whether a text that was complete is no longer there when more tokens have come."""
    texts = [
        tokenizer.decode(ids[:end], skip_special_tokens=skip) for end in range(1, len(ids) + 1)
    ]
    whole = [text for text in texts if not text.endswith(REPLACEMENT)]
    return any(not texts[-1].startswith(text) for text in whole) or any(
        not later.startswith(text) for text, later in pairwise(whole)
    )


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_flush_are_the_batch_decode(kind: str, pieces: bool) -> None:
    tokenizer, draw, compared = tokenizer_of(kind, pieces=pieces), Random(1), 0
    while compared < RUNS:
        prompt, output = token_ids(draw, tokenizer), token_ids(draw, tokenizer)
        skip = draw.random() < 0.5
        before = tokenizer.decode(prompt, skip_special_tokens=skip)
        whole = tokenizer.decode(prompt + output, skip_special_tokens=skip)
        if before.endswith(REPLACEMENT):
            continue
        if kind in TAKE_BACK and takes_back(tokenizer, prompt + output, skip=skip):
            continue
        stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        assert before + streamed(stream, output) == whole, (prompt, output, skip)
        compared += 1


@pytest.mark.parametrize("kind", TAKE_BACK)
def test_what_a_decoder_takes_back_was_given_and_nothing_is_lost(kind: str) -> None:
    tokenizer, draw = tokenizer_of(kind), Random(2)
    for _ in range(RUNS):
        output = token_ids(draw, tokenizer)
        left = iter(streamed(DecodeStream(tokenizer), output))
        batch = tokenizer.decode(output, skip_special_tokens=True)
        assert all(char in left for char in batch if char != REPLACEMENT), output


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_how_the_tokens_are_split_changes_nothing(kind: str, pieces: bool) -> None:
    tokenizer, draw = tokenizer_of(kind, pieces=pieces), Random(3)
    for _ in range(RUNS):
        steps = [token_ids(draw, tokenizer) for _ in range(draw.randint(0, 4))]
        one, many = DecodeStream(tokenizer), DecodeStream(tokenizer)
        for step in steps:
            assert many.step_batch(step) == "".join(map(one.step, step)), steps
        assert many.flush() == one.flush(), steps


@BOTH
@pytest.mark.parametrize("kind", ["byte-level", "llama", "gemma"])
def test_each_piece_is_that_of_tokenizers(kind: str, pieces: bool) -> None:
    tokenizer, draw, compared = tokenizer_of(kind, pieces=pieces), Random(4), 0
    backend = tokenizer_of(kind)
    assert isinstance(backend, HfTokenizer)
    while compared < RUNS:
        prompt, output = token_ids(draw, tokenizer), token_ids(draw, tokenizer, at_least=1)
        skip = draw.random() < 0.5
        before = tokenizer.decode(prompt, skip_special_tokens=skip)
        if before.endswith(REPLACEMENT):
            continue  # it repeats the prompt there
        if takes_back(tokenizer, prompt + output, skip=skip):
            continue  # it raises there
        reference = Reference(ids=prompt, skip_special_tokens=skip)
        stream = DecodeStream(tokenizer, prompt_token_ids=prompt, skip_special_tokens=skip)
        for token_id in output:
            expected = reference.step(backend.backend, token_id) or ""
            assert stream.step(token_id) == expected, (prompt, output, skip)
        compared += 1


# A prompt that ends inside a character


@BOTH
@pytest.mark.parametrize("kind", ["byte-level", "tekken", "tiktoken"])
def test_no_text_of_the_prompt_is_repeated_wherever_it_ends(kind: str, pieces: bool) -> None:
    tokenizer, draw = tokenizer_of(kind, pieces=pieces), Random(5)
    for _ in range(RUNS):
        text = "".join(draw.choices("aé日🎉 ", k=draw.randint(1, 8)))
        ids = ids_of_bytes(kind, text.encode())
        cut = draw.randint(0, len(ids))
        prompt = tokenizer.decode(ids[:cut], skip_special_tokens=True).rstrip(REPLACEMENT)
        stream = DecodeStream(tokenizer, prompt_token_ids=ids[:cut])
        assert prompt + streamed(stream, ids[cut:]) == text, cut


def ids_of_bytes(kind: str, raw: bytes) -> list[int]:
    """The IDs of single bytes."""
    tokenizer = tokenizer_of(kind)
    if kind == "byte-level":
        assert isinstance(tokenizer, HfTokenizer)
        return [tokenizer.token_id(written(bytes([byte]))) or 0 for byte in raw]
    first = {"tekken": 1000, "tiktoken": 0, "llama": 3, "gemma": 5}[kind]
    return [first + byte for byte in raw]


@BOTH
def test_a_character_the_prompt_began_and_the_output_breaks(pieces: bool) -> None:
    ids = [
        *ids_of_bytes("byte-level", "x 🎉".encode())[:-1],
        *ids_of_bytes("byte-level", b"no"),
    ]
    tokenizer = tokenizer_of("byte-level", pieces=pieces)
    stream = DecodeStream(tokenizer, prompt_token_ids=ids[:5])
    # The prompt's text ends with U+FFFD, and it still does: "x \ufffdno".
    assert streamed(stream, ids[5:]) == "no"


@BOTH
def test_a_run_of_bytes_that_the_prompt_began(pieces: bool) -> None:
    tokenizer = tokenizer_of("llama", pieces=pieces)
    run = [3 + byte for byte in "日🎉".encode()]
    assert tokenizer.decode(run[:4], skip_special_tokens=True) == REPLACEMENT * 4
    stream = DecodeStream(tokenizer, prompt_token_ids=run[:4])
    assert streamed(stream, run[4:]) == "🎉"


# Without an end


@BOTH
@pytest.mark.parametrize("kind", ["byte-level", "tekken", "tiktoken"])
@pytest.mark.parametrize("repeated", BROKEN)
def test_what_never_becomes_a_character_is_not_held_for_ever(
    kind: str, pieces: bool, repeated: bytes
) -> None:
    ids = ids_of_bytes(kind, repeated)
    tokenizer = tokenizer_of(kind, pieces=pieces)
    stream, text = DecodeStream(tokenizer), ""
    for _ in range(400):
        text += stream.step_batch(ids)
    assert len(stream._window) < 200
    assert text + stream.flush() == (repeated * 400).decode(errors="replace")


@BOTH
@pytest.mark.parametrize("kind", ["byte-level", "llama", "tekken", "words"])
def test_special_tokens_without_end_are_not_kept(kind: str, pieces: bool) -> None:
    tokenizer = tokenizer_of(kind, pieces=pieces)
    special = {"byte-level": 305, "llama": 2, "tekken": 2, "words": 999}[kind]
    assert tokenizer.decode([special], skip_special_tokens=True) == ""
    assert tokenizer.decode([special], skip_special_tokens=False)
    stream = DecodeStream(tokenizer)
    assert stream.step_batch([special] * 1000) == ""
    assert len(stream._window) < 10


# Single rules


def test_ids_of_no_token_have_no_text() -> None:
    tokenizer = tokenizer_of("byte-level")
    stream = DecodeStream(tokenizer)
    hello = ids_of_bytes("byte-level", "é".encode())
    above = tokenizer.max_token_id + 1
    assert [stream.step(i) for i in [hello[0], above, 2**32 - 1, hello[1]]] == ["", "", "", "é"]


@pytest.mark.parametrize("token_id", [-1, 2**32, 2**63])
def test_numbers_that_are_no_ids_are_refused(token_id: int) -> None:
    stream = DecodeStream(tokenizer_of("byte-level"))
    with pytest.raises(ValueError, match=f"{token_id} is not a token ID"):
        stream.step(token_id)
    assert stream.step(32) == "A"


def test_ids_of_a_prompt_that_are_no_tokens_do_not_count() -> None:
    # SGLang and Dynamo put numbers made from an image's hash where its features go.
    prompt = np.array([A, *[1_000_000 + i for i in range(50)]], np.uint32)
    assert DecodeStream(tokenizer_of("llama"), prompt_token_ids=prompt).step(the()) == " the"
    assert DecodeStream(tokenizer_of("llama")).step(the()) == "the"


@BOTH
def test_special_tokens_that_end_a_prompt_are_seen_through(pieces: bool) -> None:
    tokenizer = tokenizer_of("llama", pieces=pieces)
    prompt = np.array([A, *[2] * 1000], np.uint32)
    assert DecodeStream(tokenizer, prompt_token_ids=prompt).step(the()) == " the"
    # Where all of it is special and skipped, there is no text before the output.
    assert DecodeStream(tokenizer, prompt_token_ids=prompt[1:]).step(the()) == "the"


def test_ids_may_come_from_an_array() -> None:
    stream = DecodeStream(tokenizer_of("byte-level"))
    ids = np.array(ids_of_bytes("byte-level", "aé🎉b".encode()), np.uint32)
    assert stream.step_batch(ids) == "aé🎉b"


@BOTH
def test_flush_gives_what_is_held_back_once(pieces: bool) -> None:
    tokenizer = tokenizer_of("byte-level", pieces=pieces)
    ids = ids_of_bytes("byte-level", "a🎉".encode())
    stream = DecodeStream(tokenizer)
    assert stream.flush() == ""
    assert stream.step_batch(ids[:3]) == "a"
    assert stream.flush() == REPLACEMENT
    assert stream.flush() == ""
    assert stream.step_batch(ids[:3]) == "a"
    assert stream.flush("drop") == ""
    assert stream.flush() == ""
    assert stream.step_batch(ids) == "a🎉"


@BOTH
def test_a_copy_of_a_sequence_goes_on_by_itself(pieces: bool) -> None:
    first, *rest = ids_of_bytes("byte-level", "🎉".encode())
    sequence = Sequence(tokenizer_of("byte-level", pieces=pieces))
    sequence.append_tokens([A_BYTE, first])
    other = copy.copy(sequence)
    assert other.append_token(A_BYTE) == f"{REPLACEMENT}A"
    assert sequence.append_tokens(rest) == "🎉"
    assert (sequence.text, sequence.token_ids) == ("A🎉", [A_BYTE, first, *rest])
    assert (other.text, other.token_ids) == (f"A{REPLACEMENT}A", [A_BYTE, first, A_BYTE])


def test_what_the_decoder_takes_back() -> None:
    run = [3 + byte for byte in "🎉".encode()]
    ids = [*run, run[0], A]
    stream = DecodeStream(tokenizer_of("llama"))
    assert [stream.step(i) for i in ids] == ["", "", "", "🎉", "", "\ufffdA"]
    decoded = tokenizer_of("llama").decode(ids, skip_special_tokens=True)
    assert decoded == REPLACEMENT * 5 + "A"


def test_a_sequence() -> None:
    sequence = Sequence(tokenizer_of("llama"), prompt_token_ids=[1, A])
    run = [3 + byte for byte in "🎉".encode()]
    assert (sequence.text, sequence.token_ids, len(sequence)) == ("", [], 0)
    assert sequence.append_token(A) == "A"
    assert sequence.append_tokens([A, *run[:2]]) == "A"
    assert (sequence.text, sequence.token_ids, len(sequence)) == ("AA", [A, A, *run[:2]], 4)
    assert sequence.append_tokens(run[2:]) == "🎉"
    assert sequence.append_token(run[0]) == ""
    assert sequence.flush() == REPLACEMENT
    assert sequence.text == f"AA🎉{REPLACEMENT}"
    with pytest.raises(ValueError, match="not a token ID"):
        sequence.append_token(-1)
    assert len(sequence) == 7
    sequence.clear()
    assert (sequence.text, sequence.token_ids, len(sequence)) == ("", [], 0)
    assert sequence.append_token(A) == "A"


# What is looked up


def piece_texts(tokenizer: Any) -> Any:
    found = pieces_of(tokenizer)
    assert found is not None
    return found.texts(skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["byte-level", "llama", "gemma", "tekken", "tiktoken"])
def test_characters_are_looked_up_whatever_they_are_made_of(kind: str) -> None:
    tokenizer: Any = tokenizer_of(kind)
    texts = piece_texts(tokenizer)
    for token_id in ids_of_bytes(kind, "🎉".encode()):
        texts = texts[token_id]
    assert texts == "🎉"


def test_a_byte_that_is_a_letter_is_no_neighbour_to_decode_with() -> None:
    # SentencePiece's byte fallback makes it U+FFFD beside a byte that is none.
    tokenizer: Any = tokenizer_of("llama")
    assert tokenizer.decode([3 + ord("A")]) == "A"
    assert piece_texts(tokenizer).letter == (A, "A")


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmroute.text.pieces._MAX_ENTRIES", 100)
    tokenizer = TiktokenDecoder()
    stream = DecodeStream(tokenizer)
    ids = [i for first in range(194, 245) for i in (first, *range(128, 192), 65)]
    assert stream.step_batch([*range(5000), *ids]) + stream.flush() == tokenizer.decode(
        [*range(tokenizer.max_token_id + 1), *ids], skip_special_tokens=True
    )
    texts = piece_texts(tokenizer)
    assert texts is not None

    def size(known: PieceTexts) -> int:
        return len(known) + sum(
            size(deeper) for deeper in known.values() if isinstance(deeper, PieceTexts)
        )

    assert size(texts) <= tokenizer.max_token_id + 1 + 100


def test_decoders_that_do_not_join_pieces_are_decoded() -> None:
    # A word piece's text depends on whether it is the first one.
    assert not hasattr(tokenizer_of("word pieces"), "pieces")
    backend = tokenizer_of("word pieces")
    assert isinstance(backend, BackendDecoder)
    assert streamed(DecodeStream(backend), [2, 3, 4, 5, 2]) == "unaffable. un"
