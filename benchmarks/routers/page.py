"""The numbers of RouteBench as tables in a page, and as a plot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Final

from picture import write_bars, write_picture

_BLOCK: Final = re.compile(r"(<!-- routebench: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWN: Final = {  # in the drawing of a request's way
    "round robin": "round robin",
    "session affinity": "same chat, same worker",
    "production-stack's rule": "same text, same worker",
    "vllm-router, cache_aware": "vllm-router, cache_aware",
    "mmroute": "mmroute",
}
_CAPTION: Final = """\
Measured on {engines} workers ({engine}), by their own counters: {requests} questions about
pictures, {clients} at a time, {tokens} prompt tokens. The worker of the longer bar is full first.
A router that reads text does not tell pictures apart: it sends equal questions to one worker.
benchmarks/routers/README.md has the workload and all routers."""
_DRAWN: Final = 2  # engines of the picture
_BASE: Final = "mmroute"
_SIZE: Final = 32  # tokens in a block: credits that differ by less are equal


def write_page(page: Path, picture: Path, found: Mapping[str, Any]) -> None:
    """Write the tables between their marks, and the picture.

    Args:
        page: the page, which has the marks.
        picture: where the picture goes.
        found: what `routebench` measured, ``live`` and ``simulated``.
    """
    live, simulated = found["live"], found["simulated"]
    tables = {
        "live": _credits(live),
        "simulated": _credits(simulated),
        "kinds": _kinds(live),
        "probes": _probes(live, simulated),
        "cost": _cost(live),
    }
    _fill(page, tables)
    runs = live["routers"]
    told = {name: _mean_credits(of) for name, of in runs.items() if of and of[0]["credits"]}
    setting = f"{live['requests']} requests to {live['workers']} engines ({live['engine']})"
    write_bars(picture, told, f"{setting}. Shares of all prompt tokens.")


def write_load(page: Path, picture: Path, found: Mapping[str, Any]) -> None:
    """Write the tables of the runs under load, and for two engines the picture.

    Args:
        page: the page, which has the marks, with the number of engines in their names.
        picture: where the picture goes.
        found: what `load` measured.
    """
    rows, bars, number = [], {}, found["engines"]
    days = list(_hit_rates(found["routers"][_BASE]))
    for name, runs in found["routers"].items():
        computed = [
            sorted((q - h for q, h in zip(run["queries"], run["hits"], strict=True)), reverse=True)
            for run in runs
        ]
        means = [fmean(tokens) for tokens in zip(*computed, strict=True)]
        busiest = [max(run["requests"]) / fmean(run["requests"]) for run in runs]
        shown = [f"{tokens:,.0f}" for tokens in (means[0], sum(means[1:]))]
        of_day = _hit_rates(runs)
        rates = list(chain(*of_day.values()))
        daily = [_spread(of_day[d], rates) if d in of_day else "" for d in days if len(days) > 1]
        rows.append([name, _spread(rates), *daily, *shown, f"{fmean(busiest):.2f}", str(len(runs))])
        if name in _SHOWN:
            bars[_SHOWN[name]] = fmean(rates), means
    heads = ["router", "hit rate", *(days if len(days) > 1 else ()),
             "computed by the busiest engine", "by the others", "busiest", "runs"]  # fmt: skip
    tables = {f"load{number}": _table(heads, rows)}
    if found["scheduled"]:
        tables[f"scheduled{number}"] = _scheduled(found["scheduled"])
    _fill(page, tables)
    if number == _DRAWN:
        tokens = fmean(sum(run["queries"]) for run in found["routers"][_BASE])
        caption = _CAPTION.format(**found, tokens=f"{tokens / 1000:,.0f},000")
        write_picture(picture, bars, caption)


def _hit_rates(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The hit rates of each day's runs."""
    days: dict[str, list[float]] = {}
    for run in runs:
        days.setdefault(run["day"], []).append(sum(run["hits"]) / sum(run["queries"]))
    return days


def _scheduled(routers: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Times as ratios to those of the first router, and processor time to the base's."""
    first = next(iter(routers.values()))

    def ratio(runs: Sequence[Mapping[str, Any]], which: int) -> str:
        pairs = zip(runs, first, strict=False)
        ratios = [a["first_token"][which] / b["first_token"][which] for a, b in pairs]
        span = f" ({min(ratios):.2f} to {max(ratios):.2f})" if max(ratios) > min(ratios) else ""
        return f"{median(ratios):.2f}{span}"

    rows = (
        [
            name,
            ratio(runs, 0),
            ratio(runs, 1),
            _spread([sum(run["hits"]) / sum(run["queries"]) for run in runs]),
            f"{_milliseconds(runs) / _milliseconds(routers[_BASE]):.2f}",
            f"{max(run['megabytes'] for run in runs):.0f}",
            str(len(runs)),
        ]
        for name, runs in routers.items()
    )
    heads = ["router", "first token, median", "90th percentile", "hit rate", "processor time",
             "memory, MB", "runs"]  # fmt: skip
    return _table(heads, rows)


def _fill(page: Path, tables: Mapping[str, str]) -> None:
    """Write tables between their marks; the others stay."""
    text = page.read_text(encoding="utf-8")
    filled = _BLOCK.sub(lambda m: m[1] + tables[m[2]] + m[3] if m[2] in tables else m[0], text)
    page.write_text(filled, encoding="utf-8")


def _milliseconds(runs: Sequence[Mapping[str, Any]]) -> float:
    return fmean(run["milliseconds"] for run in runs)


def _mean_credits(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [fmean(part) for part in zip(*(run["credits"] for run in runs), strict=True)]


def _spread(values: Sequence[float], among: Sequence[float] = ()) -> str:
    """The mean, and its standard error; the deviation is that of all runs `among` which these are.

    Of two values the standard error is half of their distance.
    """
    runs = among or values
    error = stdev(runs) / sqrt(len(values)) if len(runs) > 1 else 0.0
    return f"{fmean(values):.1%}" + (f" ± {100 * error:.1f}" if error >= 0.0005 else "")


def _credits(found: Mapping[str, Any]) -> str:
    def row(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
        told = [run["credits"] for run in runs if run["credits"]]
        parts = [_spread(part) for part in zip(*told, strict=True)] or ["does not tell", "", ""]
        exact = _spread([run["exact"] for run in runs]) if told else ""
        counts = [run["busiest"] for run in runs]
        half = (max(counts) - min(counts)) / 2
        busiest = f"{fmean(counts):.2f}" + (f" ± {half:.2f}" if half >= 0.005 else "")
        return [
            name,
            _spread([run["hit_rate"] for run in runs]),
            *parts,
            exact,
            busiest,
            str(len(runs)),
        ]

    heads = ["router", "hit rate", "right", "wrong", "missed", "exact", "busiest", "runs"]
    return _table(heads, (row(*item) for item in found["routers"].items() if item[1]))


def _kinds(found: Mapping[str, Any]) -> str:
    runs = {name: of for name, of in found["routers"].items() if of}
    kinds = list(next(iter(runs.values()))[0]["by_kind"])
    rows = (
        [name, *(_spread([run["by_kind"][kind] for run in of]) for kind in kinds)]
        for name, of in runs.items()
    )
    return _table(["router", *kinds], rows)


def _probes(live: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    names = [n for n, of in live["routers"].items() if of and of[0]["probes"]]
    bases = (found["routers"][_BASE][0] for found in (live, simulated))
    probes = dict.fromkeys(probe for base in bases for probe in base["probes"])

    def cell(probe: str, name: str) -> str:
        for found in (live, simulated):
            for run in found["routers"].get(name) or ():
                if probe in run["altered"]:
                    return "altered"
                if probe in run["probes"]:
                    return _verdict(*run["probes"][probe])
        return "refused"

    return _table(["after", *names], ([p, *(cell(p, name) for name in names)] for p in probes))


def _verdict(_: float, wrong: float, missed: float) -> str:
    parts = [f"{n:.0f} {what}" for n, what in ((wrong, "wrong"), (missed, "missed")) if n >= _SIZE]
    return ", ".join(parts) or "right"


def _cost(found: Mapping[str, Any]) -> str:
    base = _milliseconds(found["routers"][_BASE])

    def row(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
        memory = runs[0]["megabytes"]
        ratio = _milliseconds(runs) / base
        return [name, f"{ratio:.2f}", "" if memory is None else f"{memory:.0f}"]

    rows = (row(*item) for item in found["routers"].items() if item[1])
    return _table(["router", "processor time", "memory, MB"], rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *rows))
