"""RouteBench: what routers credit rightly, wrongly and not at all, by the engines' own counters.

    python benchmarks/routers/routebench.py [MODEL] [--routers NAME ...] [--page PAGE]

Each router gets the same requests, one after the other, in front of vLLM engines on this machine
whose caches are empty, and then in front of simulated ones. Routers of the package index are
installed into environments of their own. Needs pip install '.[events,ray]'.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import rules
from fleet import Engine, Fleet, RefusedError, UnannouncedError, Used, engines
from page import write_page
from proxies import PACKAGES, dynamo, proxy
from scores import Run, Sent, sum_up
from simulated import simulation
from traffic import Asked, Probe, make_probes, make_traffic

from mmroute.errors import InexactError

PICTURE: Final = Path(__file__).parents[2] / "docs" / "routers.svg"
FAILURES: Final = (RefusedError, UnannouncedError, InexactError, RuntimeError, OSError)
SETTLE: Final = 0.02  # seconds for the events of a request to reach a router's process


class Router(Protocol):
    """What is compared."""

    def ask(self, asked: Asked, sent: list[int]) -> tuple[dict[str, Any], rules.Choice]:
        """Have a request answered; `sent` has the requests that each worker has had."""

    def used(self) -> Used:
        """What the router has taken so far."""


class InProcess:
    """A rule, whose requests are sent by the benchmark itself."""

    def __init__(self, fleet: Fleet, make: Callable[[Fleet], rules.Rule]) -> None:
        self._fleet, self._seconds = fleet, 0.0
        self._rule = make(fleet)

    def ask(self, asked: Asked, sent: list[int]) -> tuple[dict[str, Any], rules.Choice]:
        data = asked.data
        began = time.thread_time()
        choice = self._rule(asked, sent)
        self._seconds += time.thread_time() - began
        return self._fleet.workers[choice.worker].post(asked.path, data), choice

    def used(self) -> Used:
        return Used(self._seconds, None)


@contextmanager
def in_process(make: Callable[[Fleet], rules.Rule], fleet: Fleet) -> Iterator[Router]:
    yield InProcess(fleet, make)


ROUTERS: Final[dict[str, Callable[[Fleet], AbstractContextManager[Router]]]] = {
    "round robin": partial(in_process, rules.round_robin),
    "session affinity": partial(in_process, rules.session),
    "production-stack's rule": partial(in_process, rules.production_stack),
    "llm-d's approximate rule": partial(in_process, rules.llm_d_approximate),
    "Ray Serve, prefix affinity": partial(in_process, rules.ray_prefix_affinity),
    **{name: partial(proxy, package) for name, package in PACKAGES.items()},
    "Dynamo's selection service": partial(dynamo, False),
    "the same, told of items": partial(dynamo, True),
    "mmroute": partial(in_process, rules.mmroute),
}


def run(
    fleet: Fleet,
    make: Callable[[Fleet], AbstractContextManager[Router]],
    traffic: Sequence[Asked],
    probes: Sequence[Probe],
) -> Run:
    """One router's run.

    Args:
        fleet: the workers, whose caches are emptied first.
        make: starts the router.
        traffic: the requests that are counted.
        probes: pairs of requests, of which the second ones are counted, apart.
    """
    fleet.empty()
    sent = [0] * len(fleet.workers)
    with make(fleet) as router:
        first = counted = fleet.counted()

        def ask(asked: Asked) -> Sent:
            nonlocal counted
            before = router.used().seconds
            reply, choice = router.ask(asked, sent)
            number, counted = fleet.answered(counted)
            seconds = router.used().seconds - before
            sent[number] += 1
            fleet.await_events(number, asked)
            time.sleep(SETTLE)
            tokens = reply["usage"]["prompt_tokens"]
            cached = (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            credited = choice.credited
            if choice.share is not None:
                credited = choice.share * tokens
            return Sent(asked.kind, number, tokens, cached, credited, seconds)

        results = [ask(asked) for asked in traffic]
        hits, queries = (
            sum(now[field] - then[field] for now, then in zip(counted, first, strict=True))
            for field in (1, 2)
        )
        megabytes = router.used().megabytes
        probed = []
        altered = []
        for pair in probes:
            with suppress(RefusedError):  # by the router: that pair has no result
                try:
                    ask(pair.first)
                    probed.append(ask(pair.second))
                except UnannouncedError:
                    altered.append(pair.name)
        return sum_up(
            results,
            probed,
            hit_rate=hits / queries,
            workers=len(fleet.workers),
            megabytes=megabytes,
            altered=altered,
        )


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-VL-3B-Instruct")
    parser.add_argument("--engines", type=int, default=2, help="0 for none")
    parser.add_argument("--simulate", type=int, default=64, help="simulated workers; 0 for none")
    parser.add_argument("--blocks", type=int, default=600, help="of 32 tokens in each cache")
    parser.add_argument("--requests", type=int, default=80, help="to each router, live")
    parser.add_argument("--simulated-requests", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--python", type=Path, help="of an environment that has vLLM")
    parser.add_argument("--json", type=Path, default=Path("routebench.json"),
                        help="keeps the numbers; rows that are not measured anew stay")  # fmt: skip
    parser.add_argument("--page", type=Path, help="the page to write, with docs/routers.svg")
    given = parser.parse_args()
    found = json.loads(given.json.read_text("utf-8")) if given.json.is_file() else {}
    fleets: dict[str, tuple[int, AbstractContextManager[Fleet]]] = {}
    if given.engines:
        live = engines(given.model, given.engines, given.blocks, given.python)
        fleets["live"] = given.requests, live
    if given.simulate:
        many = simulation(given.model, Path(given.model).name, given.simulate, given.blocks)
        fleets["simulated"] = given.simulated_requests, many
    for name, (requests, started) in fleets.items():
        with started as fleet:
            rows = {name: of for name, of in found.get(name, {}).get("routers", {}).items()
                    if name not in given.routers}  # fmt: skip
            found[name] = {"requests": requests, **describe(fleet), "routers": rows}
            for router, result in measure(fleet, given.routers, requests, given.runs):
                rows.setdefault(router, []).append(asdict(result))
                print(row(router, result), flush=True)
                given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if given.page:
        write_page(given.page, PICTURE, found)


def describe(fleet: Fleet) -> dict[str, Any]:
    """What the numbers depend on."""
    first = fleet.workers[0]
    engine = f"vLLM {first.version()}" if isinstance(first, Engine) else "simulated"
    sizes = {"workers": len(fleet.workers), "blocks": fleet.num_blocks}
    return {"engine": engine, **sizes}


def measure(
    fleet: Fleet, routers: Sequence[str], requests: int, runs: int
) -> Iterator[tuple[str, Run]]:
    """The routers' runs, each as soon as it ends; a router that fails is told of and left out."""
    traffic = make_traffic(fleet.served, requests)
    probes = make_probes(fleet.served, next(iter(fleet.loras), None))
    print(f"{'ROUTER':28}  HIT RATE   RIGHT   WRONG  MISSED  EXACT  BUSIEST     MS     MB")
    for _, name in itertools.product(range(runs), routers):
        try:
            yield name, run(fleet, ROUTERS[name], traffic, probes)
        except FAILURES as error:
            print(f"{name:28}  {error!r}", flush=True)


def row(name: str, run: Run) -> str:
    """A line of the table."""
    told = "  ".join(f"{x:6.1%}" for x in run.credits or ()) or "     -" * 3 + " " * 4
    exact = "    -" if run.exact is None else f"{run.exact:5.0%}"
    memory = "    -" if run.megabytes is None else f"{run.megabytes:5.0f}"
    cost = f"{run.busiest:7.2f}  {run.milliseconds:5.2f}  {memory}"
    return f"{name:28}  {run.hit_rate:8.1%}  {told}  {exact}  {cost}"


if __name__ == "__main__":
    main()
