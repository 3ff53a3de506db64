"""The index credits no block that is not held, whatever becomes of the messages on their way.

What the engines send and what they hold is vLLM's own: pool_streams.json, computed by its block
pool (tools/generate_pools.py).
"""

from __future__ import annotations

import base64
import json
from collections import deque
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mmroute.kv_events import BlockIndex, Lost, Received, Restarted, WorkerRank
from mmroute.kv_events.streams import Streams

RECORDED = json.loads((Path(__file__).parent / "pool_streams.json").read_text(encoding="utf-8"))
PROMPTS = [[bytes.fromhex(digits) for digits in prompt] for prompt in RECORDED["prompts"]]
PROCESSES = [
    [(base64.b64decode(batch["payload"]), batch["held"]) for batch in stream]
    for stream in RECORDED["streams"]
]
END = (-1).to_bytes(8, "big", signed=True)
NOTHING = [0] * len(PROMPTS)


def credited(index: BlockIndex, worker: str = "w") -> list[int]:
    """How many leading blocks of each prompt the index says that a worker holds."""
    rank = WorkerRank(worker, 0)
    return [index.longest_prefixes(prompt).get(rank, 0) for prompt in PROMPTS]


def test_the_streams_are_of_the_version_the_module_names() -> None:
    assert RECORDED["backend_version"] == "0.33.0"


@pytest.mark.parametrize("process", range(len(PROCESSES)))
def test_nothing_lost_is_nothing_missed(process: int) -> None:
    index = BlockIndex()
    for payload, held in PROCESSES[process]:
        index.apply("w", payload)
        assert credited(index) == held


class Engine:
    """An engine's publisher, one process after the other, and the network before it.

    Attributes:
        process: which of the recorded processes runs.
        sent: how many batches it has published.
        replayed: how many of them it still has.
        taken: the process and the number of the batch that was entered last.
        missed: whether blocks may be held that the index does not know of.
        connects: whether the process is new, and has to be connected to.
    """

    def __init__(self, replayed: int) -> None:
        self.process = self.sent = 0
        self.replayed = replayed
        self.streams = Streams(replays=replayed > 0)
        self.taken: tuple[int, int] | None = None
        self.missed = self.connects = False

    def frames(self, number: int) -> list[bytes]:
        return [b"", number.to_bytes(8, "big"), PROCESSES[self.process][number][0]]

    def enter(self, index: BlockIndex, worker: str, messages: Any) -> None:
        """Enter messages, and answer the replays that they make necessary."""
        waiting = deque([messages])
        while waiting:
            for message in waiting.popleft():
                index.apply(worker, message)
                if isinstance(message, Received):
                    self.taken = self.process, message.sequence
                    self.missed &= message.sequence > 0
                elif isinstance(message, Lost | Restarted):
                    self.taken, self.missed = None, True
            request = self.streams.take_request()
            if request is not None:
                first = max(int.from_bytes(request, "big"), self.sent - self.replayed)
                parts = [self.frames(number) for number in range(first, self.sent)]
                waiting.extend(self.streams.replayed(part) for part in [*parts, [b"", END, b""]])

    def truth(self) -> list[int]:
        if self.taken is None:
            return NOTHING
        process, number = self.taken
        held: list[int] = PROCESSES[process][number][1]
        return held


class Contract(RuleBasedStateMachine):
    """Two engines whose batches are lost, repeated and replayed; restarts; routers that change."""

    @initialize(replayed=st.sampled_from([0, 3, 1000]))
    def start(self, replayed: int) -> None:
        self.index = BlockIndex()
        self.engines = {"v": Engine(replayed), "w": Engine(replayed)}

    @rule(worker=st.sampled_from("vw"), lost=st.integers(0, 5))
    def publish(self, worker: str, lost: int) -> None:
        """Some batches do not arrive, and one after them does."""
        engine = self.engines[worker]
        if engine.sent + lost >= len(PROCESSES[engine.process]):
            return
        engine.sent += lost
        if engine.connects:  # with replays a subscriber asks then; see `Subscriber.receive`
            engine.connects = False
            engine.streams.check()
            engine.enter(self.index, worker, ())
        if not engine.replayed and self.looks_like_the_old_process(engine):
            engine.sent += 1
        engine.sent += 1
        messages = engine.streams.received(engine.frames(engine.sent - 1))
        engine.enter(self.index, worker, messages)

    def looks_like_the_old_process(self, engine: Engine) -> bool:
        """The one restart that nothing shows without replays: what is heard has the next number."""
        return (
            engine.taken is not None
            and engine.taken[0] != engine.process
            and engine.sent == engine.taken[1] + 1
        )

    @rule(worker=st.sampled_from("vw"), back=st.integers(1, 4))
    def repeat(self, worker: str, back: int) -> None:
        engine = self.engines[worker]
        if engine.taken is not None and engine.taken[0] == engine.process:
            number = max(0, engine.taken[1] + 1 - back)
            messages = engine.streams.received(engine.frames(number))
            engine.enter(self.index, worker, messages)

    @rule(worker=st.sampled_from("vw"))
    def restart(self, worker: str) -> None:
        engine = self.engines[worker]
        if engine.process + 1 < len(PROCESSES):
            engine.process, engine.sent, engine.connects = engine.process + 1, 0, True

    @rule(worker=st.sampled_from("vw"))
    def fall_silent(self, worker: str) -> None:
        engine = self.engines[worker]
        engine.streams.check()
        engine.enter(self.index, worker, ())

    @rule()
    def take_over(self) -> None:
        """Another router goes on from a snapshot of this one."""
        self.index = BlockIndex.from_snapshot(self.index.snapshot())
        for worker, engine in self.engines.items():
            taken = self.index.positions(worker)
            engine.streams = Streams(replays=engine.replayed > 0, taken=taken)
            engine.enter(self.index, worker, ())

    @rule(worker=st.sampled_from("vw"))
    def remove(self, worker: str) -> None:
        self.index.remove_worker(worker)
        engine = self.engines[worker]
        engine.taken, engine.missed = None, True

    @precondition(lambda self: hasattr(self, "index"))
    @invariant()
    def credits_only_what_is_held(self) -> None:
        for worker, engine in self.engines.items():
            found, held = credited(self.index, worker), engine.truth()
            assert all(n <= most for n, most in zip(found, held, strict=True)), (worker, found)
            if not engine.missed:
                assert found == held, worker


TestContract = Contract.TestCase
TestContract.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
