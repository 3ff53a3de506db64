"""Encoding while the encoder is still being chosen, and in processes that were forked then."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmroute import Normalizer
from mmroute.reuse.fast_paths import EncoderChoice, EncoderStats, FastPaths
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoder_choice import PendingEncoder
from mmroute.tokenizers.encoders import Encoder

MUCH = "What is in the picture? " * 1000
LONG = "<|im_start|>user\nwhat is in the picture<|im_end|>\n" * 10


class Constant:
    """An encoder that can be told from others."""

    def __init__(self, answer: int) -> None:
        self._ids = np.array([answer], np.uint32)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        return self._ids

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self._ids, []

    def stats(self) -> EncoderStats:
        return EncoderStats("constant", "by choice")


CHOSEN, REFERENCE = [1], [2]


def answer(encoder: Encoder, text: str) -> list[int]:
    ids: list[int] = encoder.encode(text, add_special_tokens=False).tolist()
    return ids


def pending(choose: Callable[[], Encoder]) -> PendingEncoder:
    reference: Any = Constant(*REFERENCE)
    return PendingEncoder(choose, reference)


def test_the_reference_encodes_until_the_choice_is_made() -> None:
    choosing: Future[Encoder] = Future()
    encoder = pending(choosing.result)
    assert answer(encoder, MUCH) == answer(encoder, MUCH) == REFERENCE
    choosing.set_result(Constant(*CHOSEN))
    assert encoder.stats().engine == "constant"  # waits for the thread
    assert answer(encoder, LONG) == CHOSEN


def test_little_text_begins_no_choice() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def choose() -> Encoder:
        begun.set()
        goes_on.wait()
        return Constant(*CHOSEN)

    encoder = pending(choose)
    assert answer(encoder, LONG) == REFERENCE
    assert not begun.wait(0.2)
    assert answer(encoder, MUCH) == REFERENCE
    assert begun.wait(60)
    goes_on.set()


def test_the_choice_is_made_once() -> None:
    made = []

    def choose() -> Encoder:
        made.append(1)
        return Constant(*CHOSEN)

    encoder = pending(choose)
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: encoder.stats().engine, range(64))]
    assert set(found) == {"constant"}
    assert len(made) == 1
    assert answer(encoder, LONG) == CHOSEN


def test_what_chooses_is_not_kept() -> None:
    def choose() -> Encoder:
        return Constant(*CHOSEN)

    alive = weakref.ref(choose)
    encoder = pending(choose)
    del choose
    assert encoder.stats().engine == "constant"
    gc.collect()
    assert alive() is None


def test_a_process_without_threads_keeps_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    encoder = pending(lambda: Constant(*CHOSEN))
    assert answer(encoder, MUCH) == REFERENCE


def test_a_choice_that_fails_leaves_the_reference() -> None:
    def choose() -> Encoder:
        raise RuntimeError("no choice")

    encoder = pending(choose)
    assert encoder.stats().engine == "constant"
    assert answer(encoder, LONG) == REFERENCE


if hasattr(os, "fork"):

    def in_a_forked_process(right: Callable[[], bool]) -> bool:
        """What a function says there; False if it does not come back."""
        child = os.fork()
        if not child:
            status = 1
            try:
                signal.alarm(60)  # ends a process that waits for a thread it does not have
                status = not right()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @pytest.mark.process
    def test_a_process_forked_before_the_choice_uses_the_reference() -> None:
        unfinished: Future[Encoder] = Future()
        encoder = pending(unfinished.result)
        assert answer(encoder, MUCH) == REFERENCE
        assert in_a_forked_process(lambda: answer(encoder, MUCH) == REFERENCE)
        assert in_a_forked_process(lambda: encoder.stats().engine == "constant")
        unfinished.set_result(Constant(*CHOSEN))

    @pytest.mark.process
    def test_a_process_forked_before_a_choice_makes_its_own() -> None:
        encoder = pending(lambda: Constant(*CHOSEN))
        assert in_a_forked_process(
            lambda: bool(encoder.stats()) and answer(encoder, LONG) == CHOSEN
        )

    @pytest.mark.process
    def test_a_process_forked_after_the_choice_uses_what_was_chosen() -> None:
        encoder = pending(lambda: Constant(*CHOSEN))
        encoder.stats()
        assert in_a_forked_process(lambda: answer(encoder, LONG) == CHOSEN)

    @pytest.mark.process
    @pytest.mark.parametrize("choice", EncoderChoice)
    def test_a_forked_process_gives_the_same_ids(
        choice: str, small_model: Callable[[str], Path]
    ) -> None:
        normalizer = Normalizer.from_pretrained(
            small_model("small-qwen2-vl"), fast_paths=FastPaths(encoder=choice)
        )
        text = LONG * 100

        def ids() -> list[int]:
            found: list[int] = normalizer.normalize(prompt=text).token_ids.tolist()
            return found

        right = ids()
        assert in_a_forked_process(lambda: ids() == right)
