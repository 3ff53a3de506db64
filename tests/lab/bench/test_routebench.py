"""`benchmarks/routers`: its workload, its scores, and runs in front of stand-ins."""

from __future__ import annotations

import base64
import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import load
import proxies
import pytest
import routebench
import rules
from fleet import Fleet
from page import write_load
from scores import Credit, Sent, score, sum_up
from simulated import simulation
from stand_in_engine import stand_in_python
from traffic import KINDS, PICTURES, Asked, Probe, make_probes, make_traffic, zipf

SERVED = "small"


def pictures(asked: Asked) -> list[str]:
    parts = [
        p for m in asked.body["messages"] if isinstance(m["content"], list) for p in m["content"]
    ]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def test_a_seed_gives_one_workload() -> None:
    traffic = make_traffic(SERVED, 150)
    assert traffic == make_traffic(SERVED, 150)
    assert traffic != make_traffic(SERVED, 150, seed=1)
    assert {asked.kind for asked in traffic} == set(KINDS)


def test_conversations_grow() -> None:
    earlier: dict[int, Asked] = {}
    grown = 0
    for asked in make_traffic(SERVED, 150):
        if before := earlier.get(asked.session):
            told = before.body["messages"]
            assert asked.body["messages"][: len(told)] == told
            assert len(asked.body["messages"]) > len(told)
            grown += 1
        earlier[asked.session] = asked
    assert grown > 25


def test_beginnings_are_shared_and_some_are_private() -> None:
    first = {asked.session: asked for asked in reversed(make_traffic(SERVED, 400))}
    begun = Counter(
        a.body["messages"][0]["content"] for a in first.values() if a.kind == "document"
    )
    (_, shared), *others = begun.most_common()
    assert shared > 0.75 * begun.total()
    assert len(others) > 3
    assert {count for _, count in others} == {1}


def test_pictures_have_one_size_and_come_back_by_zipf() -> None:
    documents = [a for a in make_traffic(SERVED, 400) if a.kind == "document"]
    shown = Counter(pictures(asked)[0] for asked in documents)
    sizes = {struct.unpack(">II", base64.b64decode(u.partition(",")[2])[16:24]) for u in shown}
    assert len(sizes) == 1
    counts = [count for _, count in shown.most_common()]
    assert counts[0] > 3 * counts[len(counts) // 2]
    assert any(len(set(p)) < len(p) for p in map(pictures, make_traffic(SERVED, 400)))


def test_zipf_draws_the_second_half_as_often_as_the_first() -> None:
    class Weighed:
        def choices(self, of: Sequence[int], weights: Sequence[float]) -> list[int]:
            assert weights == [1, 1 / 2, 1 / 3]
            return [of[0]]

    assert zipf(Weighed(), (7, 8, 9)) == 7  # type: ignore[arg-type]  # what `random` is asked for


def test_probes_share_nothing_with_each_other() -> None:
    probes = make_probes(SERVED, "adapter")
    begun = [probe.first.body["messages"][0]["content"][:16] for probe in probes]
    assert len(set(begun)) == len(probes)
    named = {probe.name: probe for probe in probes}
    one, other = (
        pictures(asked)
        for probe in (named["another picture of the same size"],)
        for asked in (probe.first, probe.second)
    )
    assert len(one) == len(other) == 1
    assert one != other
    assert named["a LoRA adapter"].second.body["model"] == "adapter"
    assert "a LoRA adapter" not in {probe.name for probe in make_probes(SERVED)}


@pytest.mark.parametrize(
    ("credited", "cached", "expected"),
    [
        (96, 96, Credit(96, 0, 0)),
        (480, 32, Credit(32, 448, 0)),  # another picture of the same size
        (0, 224, Credit(0, 0, 224)),
        (0, 0, Credit(0, 0, 0)),
    ],
)
def test_a_credit_is_right_wrong_or_missed(credited: float, cached: int, expected: Credit) -> None:
    assert score(credited, cached) == expected


def test_the_sums_of_a_run() -> None:
    sent = [
        Sent("chat", 0, 100, 50, 50, 0.001),
        Sent("chat", 0, 100, 0, 30, 0.002),
        Sent("video", 1, 200, 100, 60, 0.003),
    ]
    probed = [Sent("a probe", 0, 100, 32, 96, 0.0), Sent("untold", 0, 100, 32, None, 0.0)]
    found = sum_up(sent, probed, hit_rate=0.375, workers=2, megabytes=None, altered=["salt"])
    assert found.credits == Credit(110 / 400, 30 / 400, 40 / 400)
    assert found.exact == 1 / 3
    assert found.by_kind == {"chat": 0.25, "video": 0.5}
    assert found.busiest == 2 * 2 / 3
    assert found.milliseconds == pytest.approx(2.0)
    assert found.probes == {"a probe": Credit(32, 64, 0)}
    untold = [Sent("chat", 0, 100, 50, None, 0.001)]
    assert sum_up(
        untold, [], hit_rate=0.5, workers=1, megabytes=None, altered=[]
    ).credits is None  # fmt: skip


def plain_probes(model: str, adapter: str | None = None) -> list[Probe]:
    """The probes that the small model answers: its template has no videos and no tools."""
    return [
        probe
        for probe in make_probes(model, adapter)
        if "video" not in probe.name and "tools" not in probe.name
    ]


@pytest.fixture
def small(small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> str:
    for kind in ("video", "agent"):
        monkeypatch.delitem(KINDS, kind)
    monkeypatch.setattr(routebench, "make_probes", plain_probes)
    return str(small_model("small-qwen2.5-vl"))


def credulous(_: Fleet) -> rules.Rule:
    """Believes that the first worker has all of every prompt."""
    return lambda _, __: rules.Choice(0, share=1.0)


@pytest.mark.process
def test_routers_in_front_of_simulated_workers(small: str) -> None:
    traffic = make_traffic(SERVED, 30)
    with simulation(small, SERVED, 2, 400) as fleet:
        probes = plain_probes(SERVED, "adapter")
        runs = {
            make: routebench.run(fleet, partial(routebench.in_process, make), traffic, probes)
            for make in (rules.round_robin, rules.mmroute, credulous)
        }
    ours, wrong = runs[rules.mmroute], runs[credulous]
    assert ours.exact == 1
    assert ours.credits == pytest.approx((ours.hit_rate, 0, 0))
    assert all(credit[1:] == (0, 0) for credit in ours.probes.values())
    assert len(ours.probes) == len(probes)
    assert ours.hit_rate > runs[rules.round_robin].hit_rate
    assert runs[rules.round_robin].credits is None
    assert wrong.busiest == 2
    assert wrong.credits is not None
    assert wrong.credits.wrong == pytest.approx(1 - wrong.hit_rate)
    assert wrong.probes["another picture of the same size"].wrong > 0


PROXY = """
import sys, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if b'"a"' in data:  # a salt
            data = data.replace(b'"cache_salt"', b'"unknown"')
        sent = urllib.request.Request(sys.argv[2] + self.path, data)
        answer = urllib.request.urlopen(sent).read()
        print("\\x1b[32mcredited=32\\x1b[0m", flush=True)
        self.answer(answer)
    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.process
def test_a_router_that_is_a_process(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies.Package, "python", lambda _: Path(sys.executable))
    monkeypatch.setattr("fleet.PATIENCE", 1.0)
    package = proxies.Package(
        "none", lambda fleet, port, _: ["-c", PROXY, str(port), fleet.workers[1].url],
        r"credited=(\d+)", "credited",
    )  # fmt: skip
    traffic = make_traffic(SERVED, 4)
    with simulation(small, SERVED, 2, 400) as fleet:
        probes = plain_probes(SERVED)
        found = routebench.run(fleet, lambda f: proxies.proxy(package, f), traffic, probes)
    assert found.busiest == 2
    assert found.probes["the same request"].right == 32
    assert found.altered == ["another cache salt"]
    assert found.megabytes is not None
    assert found.megabytes > 1


@pytest.mark.process
def test_the_command_and_the_page(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, numbers = tmp_path / "routers.md", tmp_path / "numbers.json"
    names = ("live", "simulated", "kinds", "probes", "cost")
    page.write_text("".join(f"# {n}\n<!-- routebench: {n} -->\n<!-- end -->\n" for n in names))
    monkeypatch.setattr("sys.argv", [
        "routebench.py", small, "--requests", "8", "--runs", "1", "--simulate", "3",
        "--simulated-requests", "8", "--python", str(stand_in_python(tmp_path)),
        "--json", str(numbers), "--page", str(page),
        "--routers", "round robin", "production-stack's rule", "mmroute",
    ])  # fmt: skip
    routebench.main()
    found: dict[str, Any] = json.loads(numbers.read_text())
    assert [found[part]["workers"] for part in ("live", "simulated")] == [2, 3]
    for part in found.values():
        (ours,) = part["routers"]["mmroute"]
        assert ours["exact"] == 1
    told = page.read_text()
    rate = found["live"]["routers"]["mmroute"][0]["hit_rate"]
    assert f"| mmroute | {rate:.1%} | {rate:.1%} | 0.0% | 0.0% | 100.0% | " in told
    assert "| round robin |" in told
    assert told.count("does not tell") == 2
    assert "wrong |" in told.partition("# probes")[2]
    assert page.with_suffix(".svg").read_text().count("<rect") == 1 + 3 + 2 * 3


def test_each_day_has_its_hit_rates(tmp_path: Path) -> None:
    numbers = json.loads(Path(load.__file__).with_name("load2.json").read_text("utf-8"))
    (name, (first, *_)) = next(iter(numbers["routers"].items()))
    one = {**first, "queries": [100, 100], "hits": [50, 50], "day": "2026-01-01"}
    other = {**one, "hits": [60, 60], "day": "2026-01-02"}
    page = tmp_path / "routers.md"
    page.write_text("<!-- routebench: load2 -->\n<!-- end -->\n")
    write_load(page, {**numbers, "routers": {name: [other], "mmroute": [one, other, other]}})
    told = page.read_text()
    assert "| router | hit rate | 2026-01-01 | 2026-01-02 | " in told
    assert f"| {name} | 60.0% |  | 60.0% | 40 | 40 | " in told
    # The deviation of 50, 60 and 60 is 5.77; each error is that by the root of the cell's runs.
    assert "| mmroute | 56.7% ± 3.3 | 50.0% ± 5.8 | 60.0% ± 4.1 | 43 | 43 | " in told


def test_runs_of_four_engines_have_a_table_of_their_own(tmp_path: Path) -> None:
    run = {"queries": [100] * 4, "hits": [10, 20, 30, 40], "requests": [1, 2, 3, 6], "day": "2026"}
    page = tmp_path / "routers.md"
    page.write_text("<!-- routebench: load4 -->\n<!-- end -->\n")
    write_load(page, {"engines": 4, "routers": {"mmroute": [run]}, "scheduled": {}})
    assert "| mmroute | 25.0% | 90 | 210 | 2.00 | 1 |" in page.read_text()
    assert list(tmp_path.iterdir()) == [page]


def test_a_schedule_is_the_same_for_every_router_and_has_its_rate() -> None:
    arrivals = load.schedule(4000, 20.0)
    assert arrivals == load.schedule(4000, 20.0)
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(200, rel=0.05)


def test_pictures_are_most_of_their_workload_and_answers_tell_conversations_apart() -> None:
    traffic = make_traffic(SERVED, 300, kinds=PICTURES)
    assert {asked.kind for asked in traffic} == set(PICTURES)
    assert sum(len(pictures(asked)) for asked in traffic) > 2 * len(traffic)
    told = [
        message["content"]
        for asked in {asked.session: asked for asked in traffic}.values()
        if asked.kind == "upload"
        for message in asked.body["messages"]
        if message["role"] == "assistant"
    ]
    assert len(told) == len(set(told)) > 30


@pytest.mark.process
def test_clients_keep_the_turns_of_a_conversation_in_order(small: str) -> None:
    traffic = make_traffic(SERVED, 40, kinds=PICTURES)
    open_now: set[int] = set()
    answered: list[Asked] = []

    class Watched:
        def __init__(self, router: load.Router) -> None:
            self._router, self.used = router, router.used

        def send(self, asked: Asked) -> float:
            assert asked.session not in open_now
            open_now.add(asked.session)
            seconds = self._router.send(asked)
            open_now.remove(asked.session)
            answered.append(asked)
            return seconds

    @contextmanager
    def watched(fleet: Fleet) -> Iterator[load.Router]:
        with load.ROUTERS["mmroute"](fleet) as router:
            yield Watched(router)

    with simulation(small, SERVED, 2, 400) as fleet:
        found = load.run(fleet, watched, traffic, 4)
    assert sum(found.requests) == len(answered) == 40
    assert sum(found.hits) > 0
    assert 0 < found.first_token[0] <= found.first_token[1]
    assert found.milliseconds > 0
    assert found.megabytes is not None
    assert found.megabytes > 1
    for session in {asked.session for asked in traffic}:
        turns = [asked for asked in answered if asked.session == session]
        assert turns == [asked for asked in traffic if asked.session == session]


@pytest.mark.process
def test_the_load_its_table_and_its_picture(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, numbers = tmp_path / "routers.md", tmp_path / "load.json"
    marks = "".join(
        f"<!-- routebench: {name} -->\n<!-- end -->\n" for name in ("load2", "scheduled2")
    )
    page.write_text(f"{marks}<!-- routebench: live -->\nkept\n")
    monkeypatch.setattr("sys.argv", [
        "load.py", small, "--requests", "12", "--scheduled", "6", "--clients", "3",
        "--python", str(stand_in_python(tmp_path)), "--json", str(numbers), "--page", str(page),
        "--routers", "round robin", "mmroute",
    ])  # fmt: skip
    load.main()
    found = json.loads(numbers.read_text())
    (ours,), (scheduled,) = (found[part]["mmroute"] for part in ("routers", "scheduled"))
    assert (sum(ours["requests"]), sum(scheduled["requests"])) == (12, 6)
    rate = sum(ours["hits"]) / sum(ours["queries"])
    told = page.read_text()
    assert f"| mmroute | {rate:.1%} | " in told
    assert "kept" in told
    assert "| round robin | 1.00 | 1.00 | " in told
    drawn = page.with_name("request.svg").read_text()
    assert f">{rate:.1%}<" in drawn
    assert "12 questions about" in drawn
    load.main()
    assert len(json.loads(numbers.read_text())["routers"]["mmroute"]) == 2
    sys.argv += ["--clients", "4"]
    with pytest.raises(SystemExit):
        load.main()
    assert len(json.loads(numbers.read_text())["routers"]["mmroute"]) == 2


def test_the_page_and_its_picture_show_the_numbers_that_are_kept(tmp_path: Path) -> None:
    docs, kept = Path(load.__file__).parents[2] / "docs", Path(load.__file__).parent
    page = tmp_path / "routers.md"
    page.write_text((docs / "routers.md").read_text("utf-8"), "utf-8")
    for name in ("load2.json", "load4.json"):
        write_load(page, json.loads((kept / name).read_text("utf-8")))
    for name in ("routers.md", "request.svg"):
        assert (tmp_path / name).read_text("utf-8") == (docs / name).read_text("utf-8"), name
