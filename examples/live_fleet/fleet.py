"""Routers side by side, in front of vLLM engines on this machine, by the engines' own counters.

    python examples/live_fleet/fleet.py [MODEL] [--picture FILE]

As `mmroute prove` does, it starts engines on copies of a model whose weights are few and random, so
that no GPU is needed; the first run makes their environment. Each router gets the same chats about
pictures, one request after the other, and caches of the same size. mmroute predicts for each
request how many tokens the engine will take from its cache. Needs pip install 'mmroute[events]'.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from chats import Turn, make_turns
from picture import write_picture
from routers import Asked, Router, by_blocks, by_session, by_text, in_turn

from mmroute import EngineSettings, Normalizer
from mmroute.engines.vllm.serve_command import parse_command
from mmroute.hashing import BlockHashes
from mmroute.kv_events import BlockIndex, Subscriber, WorkerRank
from mmroute.kv_events.policy import Prompt
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.parity.cases import Case
from mmroute.parity.oracles.http import HttpOracle
from mmroute.parity.prove.environment import NEWEST, engine_environment
from mmroute.parity.prove.start import Started, start_engine

ROUTERS: dict[str, Router] = {
    "in turn": in_turn,
    "same session, same worker": by_session,
    "by the text's beginning": by_text(),
    "mmroute, by block hashes": by_blocks,
}
ENGINE = "PYTHONHASHSEED=0 vllm serve {} --max-model-len 8192 --num-gpu-blocks-override {}"
HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
PATIENCE = 10.0  # seconds for the events of a request


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the requests behind one router.

    Attributes:
        hits: the prompt tokens that the engines took from their caches, by their counters.
        queries: the prompt tokens that they looked up, likewise.
        predicted: the requests whose number of cached tokens was predicted.
        sent: the requests that each worker got.
    """

    hits: int
    queries: int
    predicted: int
    sent: tuple[int, ...]

    @property
    def hit_rate(self) -> float:
        """The share of the prompt tokens that was cached, 0 to 1."""
        return self.hits / self.queries


class Worker:
    """A running engine, with what a router sees of it."""

    def __init__(self, name: str, started: Started) -> None:
        self.name = name
        self._transport = Transport(Remote(started.engine.url))
        self._oracle = HttpOracle(started.engine.url, timeout=120.0)
        self.version = self._oracle.running.version
        self.answer = self._oracle.generate
        self.events = Subscriber(started.events)

    def counted(self, counter: str) -> int:
        """The value of one of the engine's counters."""
        lines = self._transport.request("GET", "/metrics").raw.decode().splitlines()
        values = [line.split()[-1] for line in lines if line.startswith(counter + "{")]
        return int(sum(map(float, values)))


class Fleet:
    """Engines behind a router, which knows their caches by their events."""

    def __init__(self, normalizer: Normalizer, workers: Sequence[Worker]) -> None:
        self._normalizer = normalizer
        self._workers = workers
        self._index = BlockIndex()

    def run(self, name: str, router: Router, turns: Sequence[Turn]) -> Outcome:
        """Send the requests, each when the one before was answered and its blocks were told."""
        counters = (HITS, QUERIES)
        before = [sum(worker.counted(counter) for worker in self._workers) for counter in counters]
        sent, predicted = [0] * len(self._workers), 0
        for turn in turns:
            # With a salt of its own no router finds what another one's requests left.
            routing = self._normalizer.normalize(messages=turn.messages, cache_salt=name)
            hashes = routing.block_hashes()
            held = self._held(hashes)
            number = router(Asked(turn, Prompt.of(routing, hashes.block_size), held, tuple(sent)))
            worker = self._workers[number]
            tokens = self._index.reused_tokens(
                hashes, num_tokens=len(routing.token_ids), block_size=hashes.block_size
            )
            served = worker.answer(Case("", "", {"messages": turn.messages, "cache_salt": name}))
            predicted += served.cached_tokens == tokens.get(WorkerRank(worker.name, 0), 0)
            sent[number] += 1
            self._await_events(number, hashes)
        after = [sum(worker.counted(counter) for worker in self._workers) for counter in counters]
        hits, queries = (now - then for now, then in zip(after, before, strict=True))
        return Outcome(hits, queries, predicted, tuple(sent))

    def _held(self, hashes: BlockHashes) -> list[int]:
        lengths = self._index.longest_prefixes(hashes)
        return [lengths.get(WorkerRank(worker.name, 0), 0) for worker in self._workers]

    def _await_events(self, number: int, hashes: BlockHashes) -> None:
        """Read a worker's events until it holds all blocks of a request that it answered."""
        worker, end = self._workers[number], time.monotonic() + PATIENCE
        while self._held(hashes)[number] < len(hashes):
            if time.monotonic() > end:
                raise TimeoutError(f"{worker.name} announced no blocks for a request")
            for message in worker.events.receive(0.1):
                self._index.apply(worker.name, message)


def main() -> None:
    """Print the table, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-VL-3B-Instruct")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=600, help="of 32 tokens in each cache")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--python", type=Path, help="of an environment that has vLLM")
    parser.add_argument("--picture", type=Path, help="the SVG file to write")
    arguments = parser.parse_args()
    python = arguments.python or engine_environment(NEWEST, print)
    # A path would be each engine's own, and pictures have other identities by another string.
    string = Path(arguments.model).name if Path(arguments.model).is_dir() else arguments.model
    command = parse_command(ENGINE.format(string, arguments.blocks))
    turns = make_turns(arguments.requests)
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as stack:
        engines = []
        for _ in range(arguments.engines):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            started = start_engine(arguments.model, command, python, directory, say=print)
            stack.enter_context(started.engine)
            engines.append(started)
        for started in engines:
            print(f"an engine is ready after {started.engine.wait(300, lambda _: None):.0f} s")
        workers = [Worker(f"worker-{n}", started) for n, started in enumerate(engines)]
        for worker in workers:
            stack.enter_context(worker.events)
        time.sleep(1)  # what an engine announces before it is connected is lost
        settings = EngineSettings.from_args(engines[0].command.line)
        normalizer = Normalizer.from_pretrained(arguments.model, engine_settings=settings)
        fleet = Fleet(normalizer, workers)
        print(f"{'ROUTER':26}  HIT RATE  PREDICTED      SENT")
        for name, router in ROUTERS.items():
            outcomes[name] = outcome = fleet.run(name, router, turns)
            shown = f"{outcome.predicted} of {len(turns)}"
            sent = ", ".join(map(str, outcome.sent))
            print(f"{name:26}  {outcome.hit_rate:8.1%}  {shown:13}  {sent}", flush=True)
    if arguments.picture is not None:
        rates = {name: outcome.hit_rate for name, outcome in outcomes.items()}
        predicted = sum(outcome.predicted for outcome in outcomes.values())
        caption = (
            f"{len(turns)} requests about pictures of one size to {len(workers)} engines (vLLM "
            f"{workers[0].version}, {arguments.blocks} blocks of 32 tokens), by their own counters."
            f"\nmmroute predicted the number of cached tokens for {predicted:,} of "
            f"{len(turns) * len(rates):,} requests. Written by examples/live_fleet."
        )
        write_picture(arguments.picture, rates, caption)


if __name__ == "__main__":
    main()
