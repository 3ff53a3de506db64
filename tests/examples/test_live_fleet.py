"""`examples/live_fleet` in front of stand-ins, which hold all that they ever computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import fleet
import pytest
from chats import INSTRUCTION, Turn, make_turns
from routers import MOST_MORE, Asked, by_blocks, by_session, by_text, in_turn
from stand_in_engine import stand_in_python

from mmroute.kv_events.policy import Prompt, Tokens

REQUESTS = 40


@pytest.mark.process
def test_the_table_and_the_picture_have_the_counters_of_the_engines(
    small_model: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture = tmp_path / "picture.svg"
    monkeypatch.setattr("sys.argv", [
        "fleet.py", str(small_model("small-qwen2.5-vl")), "--requests", str(REQUESTS),
        "--python", str(stand_in_python(tmp_path)), "--picture", str(picture),
    ])  # fmt: skip
    fleet.main()
    told = capsys.readouterr().out
    rates = re.findall(r" ([0-9.]+%) ", told)
    assert len(rates) == len(fleet.ROUTERS)
    assert float(rates[-1][:-1]) == max(float(rate[:-1]) for rate in rates)
    assert told.count(f"{REQUESTS} of {REQUESTS}") == len(fleet.ROUTERS)  # all were predicted
    drawn = picture.read_text(encoding="utf-8")
    assert re.findall(r">([0-9.]+%)<", drawn) == rates
    assert "160 of 160 requests" in drawn


def asked(turn: Turn, held: tuple[int, int] = (0, 0), sent: tuple[int, int] = (0, 0)) -> Asked:
    return Asked(turn, Prompt(Tokens(320), Tokens(32)), held, sent)


def test_what_each_router_looks_at() -> None:
    first, second = (
        Turn(chat, [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Hi"}])
        for chat in (0, 1)
    )
    assert [in_turn(asked(first, sent=(n, n))) for n in (0, 1)] == [0, 0]
    assert in_turn(asked(first, sent=(1, 0))) == 1
    assert [by_session(asked(turn)) for turn in (first, second)] == [0, 1]
    text = by_text()
    assert text(asked(first, sent=(1, 0))) == 1
    assert text(asked(second, sent=(0, 1))) == 1  # the same text
    assert text(asked(second, sent=(0, MOST_MORE + 1))) == 0
    assert by_blocks(asked(first, held=(0, 10), sent=(0, 9))) == 1
    assert by_blocks(asked(first, held=(0, 1), sent=(0, 9))) == 0


def test_chats_grow_and_pictures_come_back() -> None:
    turns = make_turns(60)
    assert turns == make_turns(60)
    assert turns != make_turns(60, seed=1)
    earlier: dict[int, Turn] = {}
    for turn in turns:
        if before := earlier.get(turn.chat):
            assert turn.messages[: len(before.messages)] == before.messages
        earlier[turn.chat] = turn
    assert len(earlier) < len(turns)
