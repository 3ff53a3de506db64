"""How costs grow: with the turns of a conversation, with text, with image tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from benchmarks.page import Aim, Part, Subject, micro, table
from benchmarks.request_parts import fastokens_alone, measured, rendered, timed_encoder
from benchmarks.where import reuse_shares
from mmroute.batch import Request
from mmroute.bench.latency import Latency
from mmroute.bench.mixes import Mix, chat_request, conversation
from mmroute.bench.summary import summarize
from mmroute.stages import Stage

__all__ = ["conversation_part", "linear_part"]

_TURNS = (5, 10, 25, 50, 100, 200)
_SHOWN = 50
_PROFILED = 200
_TEXT_SIZES = (10, 100, 1_000, 10_000, 100_000)
_ID_SIZES = ((3, 4, 1), (10, 12, 1), (30, 40, 1), (100, 120, 1), (100, 120, 10))
_PIXELS = 28  # of a Qwen2.5-VL token, each way
# A factor of ten may cost ten times as much, and what a shared machine adds by itself.
_LINEAR = 12.0
_FLAT = 2.0


@dataclass(frozen=True, slots=True)
class _Turn:
    """The last turn of a conversation.

    Attributes:
        turns: of the conversation.
        found: what mmroute needs.
        alone: microseconds of fastokens for all of the text; None if it was not run.
    """

    turns: int
    found: Latency
    alone: float | None

    def p50(self, stage: Stage) -> float:
        """Microseconds of one stage."""
        return self.found.stages[stage].p50

    def row(self) -> list[str]:
        """Its line in the table."""
        stages = (Stage.ENCODE, Stage.RENDER, Stage.OTHER)
        times = [*map(self.p50, stages), self.found.whole.p50, self.p50(Stage.HASH)]
        reuse = self.found.text_reuse
        return [
            str(self.turns),
            f"{2 * self.turns},000",
            str(self.found.token_ids),
            *map(micro, times),
            "not run" if self.alone is None else micro(self.alone),
            f"{reuse.hits} of {reuse.hits + reuse.misses}" if reuse else "-",
        ]


def conversation_part(subject: Subject) -> Part:
    """A chat that goes on: one new turn of 2,000 characters."""
    turns = [_measure_turn(subject, count) for count in _TURNS]
    curves: dict[str, list[tuple[float, float]]] = {
        "encode stage": [(turn.turns, turn.p50(Stage.ENCODE)) for turn in turns],
        "whole request": [(turn.turns, turn.found.whole.p50) for turn in turns],
        "fastokens, all of the text": [(turn.turns, turn.alone or 0) for turn in turns],
    }
    text = (
        "A turn is a question and an answer of 1,000 characters each. The chat was asked before, "
        "up to its last turn but one; then every timed request has another last answer and "
        "question. mmroute's cache of texts takes part (the last column: lookups that found a "
        "known beginning; below 16,384 characters it leaves a text alone), and so does its cache "
        "of block hashes. fastokens encodes the same rendered text whole; its memory of words "
        "takes part in both."
    )
    head = ("turns", "characters", "token IDs", "encode", "render", "other", "whole", "+ xxhash",
            "fastokens, whole text", "cache of texts")  # fmt: skip
    lines = [text, "", *table(head, [turn.row() for turn in turns]), *_profile(subject)]
    return Part("One more turn of a conversation", lines, _turn_aims(turns), curves)


def _measure_turn(subject: Subject, turns: int) -> _Turn:
    subject.say(f"a conversation of {turns} turns")
    repeat = max(10, subject.repeat // 10)
    mix = Mix(f"turn {turns}", "", partial(_branch, turns), partial(_known, turns))
    found = measured(subject, mix, repeat=repeat)
    encode = fastokens_alone(subject)
    if encode is None:
        return _Turn(turns, found, None)
    return _Turn(turns, found, timed_encoder(subject, mix, encode, repeat, 5_000_000).p50)


def _turn_aims(turns: Sequence[_Turn]) -> list[Aim]:
    aims = []
    (shown,) = [turn for turn in turns if turn.turns == _SHOWN]
    for what, value in (
        ("encode stage", shown.p50(Stage.ENCODE)),
        ("whole request", shown.found.whole.p50),
    ):
        share = None if shown.alone is None else value / shown.alone
        said = micro(value) if share is None else f"{micro(value)}, {share:.2f} of fastokens"
        met = None if share is None else share <= 0.2
        aims.append(Aim(f"one new turn after 100,000 characters: {what}", said,
                        "0.20 of fastokens encoding it whole", met))  # fmt: skip
    first, last = turns[0], turns[-1]
    more = last.p50(Stage.ENCODE) - first.p50(Stage.ENCODE)
    growth = last.p50(Stage.ENCODE) / first.p50(Stage.ENCODE)
    said = f"{growth:.1f}x ({micro(more / (last.turns - first.turns))} for each turn more)"
    what = f"encode stage, {last.turns} turns against {first.turns}, 40 times the text"
    return [*aims, Aim(what, said, "close to flat (2x)", growth <= _FLAT)]


def _profile(subject: Subject) -> list[str]:
    encode = fastokens_alone(subject)
    if encode is None:
        return []
    known, text = (
        rendered(subject.reference, conversation(1, turns)) for turns in (_SHOWN - 1, _SHOWN)
    )
    assert text.startswith(known)
    steps = reuse_shares(encode, known, text)
    tokenizer = subject.normalizer.model.tokenizer
    texts = [rendered(subject.reference, _branch(_SHOWN, 9_000_000 + n)) for n in range(_PROFILED)]
    times = []
    for fresh in texts:
        started = time.perf_counter_ns()
        tokenizer.encode(fresh, add_special_tokens=False)
        times.append(time.perf_counter_ns() - started)
    return [
        (
            f"The steps of the encode stage at {_SHOWN} turns, each alone on one text again and "
            f"again; the whole stage on {_PROFILED} other branches back to back, with all "
            f"bookkeeping, takes {micro(summarize(times).p50)}:"
        ),
        "",
        *steps,
    ]


def _branch(turns: int, number: int) -> Request:
    return conversation(turns, turns, branch=number)


def _known(turns: int) -> list[Request]:
    return [conversation(turns, turns - 1)]


def linear_part(subject: Subject) -> Part:
    """Text and expanded IDs, each over four orders of magnitude."""
    texts = [_measure_text(subject, words) for words in _TEXT_SIZES]
    images = [_measure_images(subject, *size) for size in _ID_SIZES]
    expanding = [(count, _expanding(found)) for count, _, found in images]
    wholes = [(words, found.whole.p50) for words, found in texts]
    lines = [
        ("Every text is new. From 16,384 characters on (10,000 words) mmroute looks for a known "
        "beginning in its cache of texts, in vain, and keeps the text: that is in the time."),
        "",
        *table(
            ("text", "token IDs", "encode", "everything else", "whole, p50", "for 1,000 words"),
            [
                (f"{words:,} words", str(found.token_ids), micro(found.stages[Stage.ENCODE].p50),
                 micro(found.without_encoding.p50), micro(found.whole.p50),
                 micro(1000 * found.whole.p50 / words))
                for words, found in texts
            ],
        ),
        "Expanded IDs, with ten words of text:",
        "",
        *table(
            ("image tokens", "images", "count, place, expand", "whole, p50", "+ xxhash"),
            [
                (f"{count:,}", says, micro(_expanding(found)), micro(found.whole.p50),
                 micro(found.stages[Stage.HASH].p50))
                for count, says, found in images
            ],
        ),
    ]  # fmt: skip
    aims = [
        _linear("words of text, 10 to 100,000: ten times as many", wholes),
        _linear("expanded IDs, 12 to 120,000: ten times as many", expanding),
    ]
    curves = {
        "text: whole request, by words": wholes,
        "images: count, place and expand, by IDs": expanding,
    }
    return Part("Cost by size", lines, aims, curves)


def _measure_text(subject: Subject, words: int) -> tuple[float, Latency]:
    subject.say(f"{words} words")
    repeat = max(10, min(subject.repeat, 1_000_000 // words))
    mix = Mix(f"{words} words", "", partial(chat_request, words=words))
    return words, measured(subject, mix, repeat=repeat)


def _measure_images(
    subject: Subject, rows: int, columns: int, images: int
) -> tuple[float, str, Latency]:
    count = rows * columns * images
    subject.say(f"{count} image tokens")
    size = (columns * _PIXELS, rows * _PIXELS)
    mix = Mix(f"{count} IDs", "", partial(chat_request, words=10, images=[size] * images))
    found = measured(subject, mix, repeat=max(10, subject.repeat // 2))
    return count, f"{images} of {size[0]}x{size[1]}", found


def _expanding(found: Latency) -> float:
    return sum(found.stages[stage].p50 for stage in (Stage.COUNT, Stage.PLACE, Stage.EXPAND))


def _linear(what: str, points: Sequence[tuple[float, float]]) -> Aim:
    times = [microseconds for _, microseconds in points]
    growth = [later / earlier for earlier, later in pairwise(times)]
    said = ", ".join(f"{factor:.1f}x" for factor in growth)
    return Aim(f"{what} cost", said, "10x at most (12x with noise)", max(growth) <= _LINEAR)
