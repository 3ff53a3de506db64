"""A soak of the index: engines are killed and batches lost, and every credited block is checked.

    python benchmarks/soak_block_index.py --vllm-python PATH [--seconds 60] [--workers 4]

Each engine is a process with vLLM's own block pool and event publisher. It writes down what its
pool holds before it publishes a batch. Here its events are followed, of which one in twenty is
thrown away unread. After each message, what the index credits is compared with what the pool held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent.parent / "tools"
LOST = 0.05
BUFFER_STEPS = 1000  # batches that an engine can replay
LIFE = 3.0  # seconds between two kills


def main() -> None:
    """Start the engines, follow them, and print what was checked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vllm-python", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--port", type=int, default=26000)
    parser.add_argument("--engines", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engines:
        run_engines(arguments.engines, arguments.workers, arguments.port)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [
            arguments.vllm_python, __file__, "--vllm-python", "-", "--engines", folder,
            "--workers", str(arguments.workers), "--port", str(arguments.port),
        ]  # fmt: skip
        engines = subprocess.Popen(command)
        try:
            print(json.dumps(soak(Path(folder), arguments)))
        finally:
            engines.terminate()
            engines.wait()


def soak(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Follow the engines, and stop at the first block that is credited and not held."""
    from mmroute.kv_events import BlockIndex, Received, Subscriber, WorkerRank

    while not (folder / "prompts.json").exists():
        time.sleep(0.1)
    prompts = [list(map(bytes.fromhex, p)) for p in json.loads(read(folder / "prompts.json"))]
    index, counts, draw = BlockIndex(), Counter[str](), random.Random(0)
    truths = [Truth(folder, worker) for worker in range(arguments.workers)]
    subscribers = []
    for worker in range(arguments.workers):
        events, replays = (f"tcp://127.0.0.1:{p}" for p in ports(arguments.port, worker))
        subscribers.append(Subscriber(events, replay_endpoint=replays))
        lossy(subscribers[-1], draw, counts)
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        for worker, subscriber in enumerate(subscribers):
            name = f"w{worker}"
            for message in subscriber.receive(0.01):
                index.apply(name, message)
                counts[type(message).__name__] += 1
                if not isinstance(message, Received):
                    continue
                held = truths[worker].at(message.changes.ts)
                for prompt, most in zip(prompts, held, strict=True):
                    credited = index.longest_prefixes(prompt)[WorkerRank(name, 0)]
                    assert credited <= most, (name, message.sequence, credited, most)
                    counts["credited"] += credited
                    counts["held"] += most
        if draw.random() < 0.01:  # another router takes over
            index = BlockIndex.from_snapshot(index.snapshot())
            counts["taken over"] += 1
    counts["killed"] = sum(len(truth.files()) for truth in truths) - len(truths)
    return dict(counts)


def lossy(subscriber: Any, draw: random.Random, counts: Counter[str]) -> None:
    """Throw away some of what a subscriber's socket receives."""
    received = subscriber._streams.received  # noqa: SLF001  # there is no other place to lose it

    def some(frames: list[bytes]) -> Iterator[Any]:
        if draw.random() < LOST:
            counts["thrown away"] += 1
            return iter(())
        found: Iterator[Any] = received(frames)
        return found

    subscriber._streams = Lossy(subscriber._streams, some)  # noqa: SLF001


class Lossy:
    """The streams of a subscriber, with another `received`."""

    def __init__(self, streams: Any, received: Any) -> None:
        self._streams = streams
        self.received = received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)


class Truth:
    """What one worker's pools held, by the time of the batch."""

    def __init__(self, folder: Path, worker: int) -> None:
        self._folder, self._worker = folder, worker
        self._held: dict[float, list[int]] = {}
        self._read: Counter[Path] = Counter()

    def files(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._worker}-*.jsonl"))

    def at(self, ts: float) -> list[int]:
        if ts not in self._held:
            for path in self.files():
                with path.open(encoding="utf-8") as lines:
                    lines.seek(self._read[path])
                    while (line := lines.readline()).endswith("\n"):
                        self._read[path] = lines.tell()
                        time_of_batch, held = json.loads(line)
                        self._held[time_of_batch] = held
        return self._held[ts]


def ports(first: int, worker: int) -> tuple[int, int]:
    return first + 2 * worker, first + 2 * worker + 1


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def run_engines(folder: Path, workers: int, port: int) -> None:
    """Run all engines, and kill one after the other. This is what vLLM's interpreter runs."""
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "1"
    sys.path.append(str(TOOLS))
    import generate_pools as pools
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256)
    prompts = pools._prompts(random.Random(0))  # noqa: SLF001  # the same life as recorded streams have
    requests = [pools._request(ids) for ids in prompts]  # noqa: SLF001
    unfinished = folder / "prompts.part"
    unfinished.write_text(json.dumps([[h.hex() for h in r.block_hashes] for r in requests]))
    unfinished.rename(folder / "prompts.json")
    running: dict[int, int] = {}

    def stop(*_: object) -> None:
        for child in running:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    def start(worker: int, life: int) -> None:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            run_engine(pools, requests, folder / f"{worker}-{life:04}.jsonl", *ports(port, worker))
        running[child] = worker

    signal.signal(signal.SIGTERM, stop)
    for worker in range(workers):
        start(worker, 0)
    for life in range(1, sys.maxsize):
        time.sleep(LIFE / workers)
        child = random.choice(list(running))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        start(running.pop(child), life)


def run_engine(pools: Any, requests: list[Any], path: Path, events: int, replays: int) -> None:
    """Publish what becomes of one pool, until it is killed."""
    from vllm.distributed.kv_events import KVEventBatch, ZmqEventPublisher
    from vllm.v1.core.block_pool import BlockPool

    draw = random.Random()
    pool = BlockPool(
        pools.POOL_BLOCKS, enable_caching=True, hash_block_size=pools.BLOCK_SIZE,
        enable_kv_cache_events=True,
    )  # fmt: skip
    publisher = ZmqEventPublisher(
        0, f"tcp://*:{events}", f"tcp://*:{replays}", buffer_steps=BUFFER_STEPS
    )
    running: list[list[Any]] = []
    with path.open("w", encoding="utf-8") as truth:
        while True:
            pools._step(pool, draw, requests, running)  # noqa: SLF001
            batch = KVEventBatch(time.time(), pool.take_events())
            held = [pools._held(pool, request, pools.GROUPS) for request in requests]  # noqa: SLF001
            truth.write(json.dumps([batch.ts, held]) + "\n")
            truth.flush()
            publisher.publish(batch)
            if draw.random() < 0.3:
                time.sleep(draw.random() * 0.02)


if __name__ == "__main__":
    main()
