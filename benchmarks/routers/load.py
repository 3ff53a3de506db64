"""What running engines compute behind each router, under a load of pictures.

    python benchmarks/routers/load.py [MODEL] [--engines 4] [--page PAGE]

Clients send questions about pictures at the same time, each the next turn of a conversation as soon
as the one before is answered. Then fewer are sent at the times of one schedule, which is the same
for every router. Hits are the engines' own. Today's runs come to those that are kept. Needs
'.[events]'.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, Protocol

import rules
from apart import apart
from fleet import Engine, Fleet, Used, engines
from page import write_load
from proxies import PACKAGES, proxy
from traffic import PICTURES, SIDE, Asked, make_traffic

from mmroute.kv_events.policy import DEFAULT_WEIGHTS

PICTURE: Final = Path(__file__).parents[2] / "docs" / "request.svg"
SHARE: Final = 0.5  # of the rate that the first router reaches, at which scheduled requests come


class Router(Protocol):
    """What is compared."""

    def send(self, asked: Asked) -> float:
        """Have a request answered; the seconds until its first token."""

    def used(self) -> Used:
        """What the router has taken so far."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was counted in one run.

    Attributes:
        queries: the prompt tokens that each worker was sent.
        hits: those of them that it took from its cache.
        requests: the requests that it answered.
        seconds: the time of the whole run.
        first_token: the median, and the 90th percentile, of the seconds until a first token.
        milliseconds: the processor time of the router's process for a request.
        megabytes: the most memory that it took.
    """

    queries: list[int]
    hits: list[int]
    requests: list[int]
    seconds: float
    first_token: tuple[float, float]
    milliseconds: float
    megabytes: float | None


def in_turn(fleet: Fleet) -> rules.Rule:
    """The workers one after the other, however busy they are."""
    turns = itertools.cycle(range(len(fleet.workers)))
    return lambda *_: rules.Choice(next(turns))


ROUTERS: Final[dict[str, Callable[[Fleet], AbstractContextManager[Router]]]] = {
    "round robin": partial(apart, in_turn),
    "session affinity": partial(apart, rules.session),
    "production-stack's rule": partial(apart, rules.production_stack),
    **{name: partial(proxy, package) for name, package in PACKAGES.items()},
    "mmroute": partial(apart, partial(rules.mmroute, weights=DEFAULT_WEIGHTS)),
}


def run(
    fleet: Fleet,
    make: Callable[[Fleet], AbstractContextManager[Router]],
    traffic: Sequence[Asked],
    clients: int,
    arrivals: Iterable[float] = itertools.repeat(0.0),
) -> Loaded:
    """One router's run, from empty caches on.

    Args:
        fleet: the workers.
        make: starts the router.
        traffic: the requests, in the order in which they are sent.
        clients: the most requests that are open at a time.
        arrivals: the second in which each request is sent, unless the conversation waits for an
            answer; all of them at once, if there are clients enough.
    """
    fleet.empty()
    left, changed = list(zip(traffic, arrivals, strict=False)), threading.Condition()
    talking: set[int] = set()
    waited: list[float] = []

    def client(router: Router, began: float) -> None:
        while True:
            with changed:
                while (found := _next(left, talking)) is None and left:
                    changed.wait()
                if found is None:
                    return
                left.remove(found)
                asked, due = found
                talking.add(asked.session)
            try:
                time.sleep(max(0.0, began + due - time.monotonic()))
                waited.append(router.send(asked))
            finally:
                with changed:
                    talking.remove(asked.session)
                    changed.notify_all()

    with make(fleet) as router, ThreadPoolExecutor(clients) as threads:
        before, taken, began = fleet.counted(), router.used().seconds, time.monotonic()
        for one in [threads.submit(client, router, began) for _ in range(clients)]:
            one.result()
        seconds, after, used = time.monotonic() - began, fleet.counted(), router.used()
    counts = [
        [b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    ]
    requests, hits, queries = map(list, zip(*counts, strict=True))
    if sum(requests) != len(traffic):
        raise RuntimeError(f"{len(traffic)} requests were sent, and {sum(requests)} answered")
    first = median(waited), quantiles(waited, n=10)[-1]
    milliseconds = (used.seconds - taken) * 1e3 / len(traffic)
    return Loaded(queries, hits, requests, seconds, first, milliseconds, used.megabytes)


def schedule(count: int, rate: float) -> list[float]:
    """The seconds in which so many requests arrive, at so many a second, with random gaps."""
    draw = random.Random(0)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))


def _next(left: Sequence[tuple[Asked, float]], talking: set[int]) -> tuple[Asked, float] | None:
    """The first request whose conversation waits for no answer."""
    return next((found for found in left if found[0].session not in talking), None)


def main() -> None:
    """Measure, keep the numbers, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-VL-3B-Instruct")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=600, help="of 32 tokens in each cache")
    parser.add_argument("--requests", type=int, default=400, help="to each router")
    parser.add_argument("--clients", type=int, default=8, help="requests that are open at a time")
    parser.add_argument("--scheduled", type=int, default=160,
                        help="requests of the schedule; 0 for none")  # fmt: skip
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--python", type=Path, help="of an environment that has vLLM")
    parser.add_argument("--json", type=Path,
                        help="the kept runs, to which those of today come")  # fmt: skip
    parser.add_argument("--page", type=Path, help="the page to write, with docs/request.svg")
    given = parser.parse_args()
    numbers = given.json or Path(__file__).with_name(f"load{given.engines}.json")
    found = json.loads(numbers.read_text("utf-8")) if numbers.is_file() else {}
    with engines(given.model, given.engines, given.blocks, given.python) as fleet:
        first = fleet.workers[0]
        traffic = make_traffic(fleet.served, given.requests, kinds=PICTURES)
        settings = {
            "engine": f"vLLM {first.version()}" if isinstance(first, Engine) else "",
            "model": Path(fleet.served).name.lower(), "engines": given.engines,
            "blocks": given.blocks, "requests": given.requests, "clients": given.clients,
            "side": SIDE, "scheduled_requests": given.scheduled,
        }  # fmt: skip
        found = found or {**settings, "routers": {}, "scheduled": {}}
        if other := [name for name, value in settings.items() if found.get(name) != value]:
            parser.error(f"{numbers} has runs with another {', '.join(other)}: name another file")

        def measure(part: str, name: str, **how: Any) -> Loaded:
            loaded = run(fleet, ROUTERS[name], **how)
            today = {"day": datetime.now(UTC).date().isoformat(), **asdict(loaded)}
            found[part].setdefault(name, []).append(today)
            numbers.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            rate = sum(loaded.hits) / sum(loaded.queries)
            print(f"{name:28}  {rate:6.1%}  {loaded.requests}  {loaded.seconds:.0f} s", flush=True)
            return loaded

        for name in given.routers:
            loaded = measure("routers", name, traffic=traffic, clients=given.clients)
            if name == given.routers[0]:
                arrivals = schedule(given.scheduled, SHARE * given.requests / loaded.seconds)
        for name in given.routers if given.scheduled else ():
            few = traffic[: given.scheduled]
            measure("scheduled", name, traffic=few, clients=64, arrivals=arrivals)
    if given.page:
        write_load(given.page, PICTURE, found)


if __name__ == "__main__":
    main()
