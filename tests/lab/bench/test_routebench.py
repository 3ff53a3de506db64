"""`benchmarks/routers`: its workload, its scores, and runs in front of stand-ins."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import load
import pytest
import routebench
import rules
from fleet import Fleet
from page import write_load
from scores import Credit, score
from simulated import simulation
from traffic import KINDS, Asked, Probe, make_probes, make_traffic

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


def test_the_page_and_its_picture_show_the_numbers_that_are_kept(tmp_path: Path) -> None:
    kept = Path(load.__file__).parent
    page, picture = tmp_path / "README.md", tmp_path / "request.svg"
    page.write_text((kept / "README.md").read_text("utf-8"), "utf-8")
    for name in ("load2.json", "load4.json"):
        write_load(page, picture, json.loads((kept / name).read_text("utf-8")))
    for written, shown in ((page, kept / "README.md"), (picture, load.PICTURE)):
        assert written.read_text("utf-8") == shown.read_text("utf-8"), shown
