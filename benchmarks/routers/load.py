"""What two running engines compute behind each router, under a load of pictures.

    python benchmarks/routers/load.py [MODEL] [--page docs/routers.md]

Clients send questions about pictures at the same time, each the next turn of a conversation as soon
as the one before is answered. Only the engines' own counters are read. Needs mmroute[events].
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import rules
from fleet import Engine, Fleet, engines
from page import write_load
from proxies import PACKAGES, proxy
from traffic import PICTURES, SIDE, Asked, make_traffic

from mmroute.kv_events.policy import DEFAULT_WEIGHTS

Send = Callable[[Asked], None]
"""Has a request answered."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the engines counted in one run.

    Attributes:
        queries: the prompt tokens that each engine was sent.
        hits: those of them that it took from its cache.
        requests: the requests that it answered.
        seconds: the time of the whole run.
    """

    queries: list[int]
    hits: list[int]
    requests: list[int]
    seconds: float


@contextmanager
def in_process(make: Callable[[Fleet], rules.Rule], fleet: Fleet) -> Iterator[Send]:
    """A rule, which is told how many requests each worker is working on."""
    lock, working = threading.Lock(), [0] * len(fleet.workers)
    rule = make(fleet)

    def send(asked: Asked) -> None:
        with lock:
            worker = rule(asked, working).worker
            working[worker] += 1
        fleet.workers[worker].post(asked.path, asked.data)
        with lock:
            working[worker] -= 1

    with fleet.listening(lock):
        yield send


def in_turn(fleet: Fleet) -> rules.Rule:
    """The workers one after the other, however busy they are."""
    turns = itertools.cycle(range(len(fleet.workers)))
    return lambda *_: rules.Choice(next(turns))


@contextmanager
def package(name: str, fleet: Fleet) -> Iterator[Send]:
    """A router of the package index, as a process."""
    with proxy(PACKAGES[name], fleet) as router:
        yield router.send


ROUTERS: Final[dict[str, Callable[[Fleet], AbstractContextManager[Send]]]] = {
    "round robin": partial(in_process, in_turn),
    "session affinity": partial(in_process, rules.session),
    "production-stack's rule": partial(in_process, rules.production_stack),
    **{name: partial(package, name) for name in PACKAGES},
    "mmroute": partial(in_process, partial(rules.mmroute, weights=DEFAULT_WEIGHTS)),
}


def run(
    fleet: Fleet,
    make: Callable[[Fleet], AbstractContextManager[Send]],
    traffic: Sequence[Asked],
    clients: int,
) -> Loaded:
    """One router's run, from empty caches on.

    Args:
        fleet: the workers.
        make: starts the router.
        traffic: the requests, in the order in which they are sent.
        clients: the number of requests that are open at a time.
    """
    fleet.empty()
    left, changed = list(traffic), threading.Condition()
    talking: set[int] = set()

    def client(send: Send) -> None:
        while True:
            with changed:
                while (asked := _next(left, talking)) is None and left:
                    changed.wait()
                if asked is None:
                    return
                left.remove(asked)
                talking.add(asked.session)
            try:
                send(asked)
            finally:
                with changed:
                    talking.remove(asked.session)
                    changed.notify_all()

    with make(fleet) as send, ThreadPoolExecutor(clients) as threads:
        before, began = fleet.counted(), time.monotonic()
        for one in [threads.submit(client, send) for _ in range(clients)]:
            one.result()
        seconds, after = time.monotonic() - began, fleet.counted()
    counts = [
        [b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    ]
    requests, hits, queries = map(list, zip(*counts, strict=True))
    if sum(requests) != len(traffic):
        raise RuntimeError(f"{len(traffic)} requests were sent, and {sum(requests)} answered")
    return Loaded(queries, hits, requests, seconds)


def _next(left: Sequence[Asked], talking: set[int]) -> Asked | None:
    """The first request whose conversation waits for no answer."""
    return next((asked for asked in left if asked.session not in talking), None)


def main() -> None:
    """Measure, keep the numbers, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-VL-3B-Instruct")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=600, help="of 32 tokens in each cache")
    parser.add_argument("--requests", type=int, default=400, help="to each router")
    parser.add_argument("--clients", type=int, default=8, help="requests that are open at a time")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--python", type=Path, help="of an environment that has vLLM")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("load.json"),
                        help="keeps the numbers; rows that are not measured anew stay")  # fmt: skip
    parser.add_argument("--page", type=Path, help="the page to write, with the picture beside it")
    given = parser.parse_args()
    found = json.loads(given.json.read_text("utf-8")) if given.json.is_file() else {}
    rows: dict[str, list[dict[str, Any]]] = found.get("routers", {})
    rows = {name: rows.get(name, []) for name in ROUTERS} | {name: [] for name in given.routers}
    with engines(given.model, given.engines, given.blocks, given.python) as fleet:
        first = fleet.workers[0]
        traffic = make_traffic(fleet.served, given.requests, kinds=PICTURES)
        found = {
            "engine": f"vLLM {first.version()}" if isinstance(first, Engine) else "",
            "model": fleet.served, "engines": given.engines, "blocks": given.blocks,
            "requests": given.requests, "clients": given.clients, "side": SIDE, "routers": rows,
        }  # fmt: skip
        for _, name in itertools.product(range(given.runs), given.routers):
            loaded = run(fleet, ROUTERS[name], traffic, given.clients)
            rows[name].append(asdict(loaded))
            rate = sum(loaded.hits) / sum(loaded.queries)
            print(f"{name:28}  {rate:6.1%}  {loaded.requests}  {loaded.seconds:.0f} s", flush=True)
            given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.page:
        write_load(given.page, found)


if __name__ == "__main__":
    main()
