"""Encoding while the encoder is still being chosen, and in processes that were forked then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmroute import Normalizer
from mmroute.geometry import TokenIds
from mmroute.reuse.fast_paths import EncoderChoice, EncoderStats, FastPaths
from mmroute.tokenizers.choice import PendingEncoder
from mmroute.tokenizers.encoders import Encoder

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


class Choosing(Future[Encoder]):
    """A choice that is made when somebody waits for it."""

    def result(self, timeout: float | None = None) -> Encoder:
        if not self.done():
            self.set_result(Constant(*CHOSEN))
        return super().result(timeout)


def answer(encoder: Encoder, text: str) -> list[int]:
    ids: list[int] = encoder.encode(text, add_special_tokens=False).tolist()
    return ids


def pending(choosing: Future[Encoder]) -> PendingEncoder:
    reference: Any = Constant(*REFERENCE)
    return PendingEncoder(choosing, reference)


def test_the_reference_encodes_until_the_choice_is_made() -> None:
    choosing: Future[Encoder] = Future()
    encoder = pending(choosing)
    assert answer(encoder, LONG) == REFERENCE
    choosing.set_result(Constant(*CHOSEN))
    assert answer(encoder, LONG) == CHOSEN


def test_a_choice_that_fails_leaves_the_reference() -> None:
    choosing: Future[Encoder] = Future()
    encoder = pending(choosing)
    choosing.set_exception(RuntimeError("no choice"))
    assert answer(encoder, LONG) == REFERENCE
    assert encoder.stats().engine == "constant"


def test_counters_wait_for_the_choice() -> None:
    assert pending(Choosing()).stats().engine == "constant"


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
        encoder = pending(unfinished)
        assert in_a_forked_process(lambda: answer(encoder, LONG) == REFERENCE)

    @pytest.mark.process
    def test_a_process_forked_after_the_choice_uses_what_was_chosen() -> None:
        made: Future[Encoder] = Future()
        made.set_result(Constant(*CHOSEN))
        encoder = pending(made)
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
