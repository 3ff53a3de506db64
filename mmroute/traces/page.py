"""A trace's report, and one explanation, as self-contained HTML pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from markupsafe import Markup

from mmroute.pages.plots import bars, lines
from mmroute.pages.rendering import rendered
from mmroute.traces.explain import Explanation
from mmroute.traces.report import cache_table, facts, loss_table, policy_table
from mmroute.traces.simulation import Policy

_SHOWN: Final = (Policy.BLOCK_HASHES, Policy.ROUND_ROBIN)  # the policies in the plot over time
_UNITS: Final = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000))  # milliseconds
_MAX_TICKS: Final = 6

_Plot: TypeAlias = "tuple[str, str, Markup, Sequence[str], Sequence[Sequence[str]]]"


def explanation_page(explanation: Explanation) -> str:
    """An explanation as HTML."""
    sizes = f"{explanation.first.num_blocks} and {explanation.second.num_blocks}"
    verdict = f"{explanation.shared_blocks} blocks shared, of {sizes}."
    if explanation.block is not None:
        verdict += f" The first block that differs is {explanation.block}"
        verdict += "." if explanation.token is None else f", the first token {explanation.token}."
    return rendered(
        "traces/explanation.html",
        title="Why a prefix missed",
        verdict=verdict,
        explanation=explanation,
    )


def trace_page(name: str, report: dict[str, Any]) -> str:
    """A report as HTML.

    Args:
        name: the name of the trace.
        report: the report from `mmroute.traces.report.as_dict`.
    """
    best = max(report["policies"], key=lambda each: each["hit_rate"])
    verdict = (
        f"One unlimited cache would have {report['one_cache'][-1]['hit_rate']:.1%} of the prompt "
        f"tokens. {report['workers']} workers of {report['worker_blocks']:,} blocks have "
        f"{best['hit_rate']:.1%} of them if requests are routed by {best['policy']}."
    )
    plots = [_curve(report), _policies(report), _over_time(report)]
    if any(loss["tokens"] for loss in report["losses"]):
        plots.append(_losses(report))
    return rendered(
        "traces/page.html",
        title=f"What {name} allows",
        verdict=verdict,
        facts=[*_engine(report), *facts(report), *_costs(report)],
        refused=report["refused"],
        plots=plots,
        losses=report["losses"],
    )


def _engine(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [("engine", report["engine"])] if report["engine"] else []


def _costs(report: dict[str, Any]) -> list[tuple[str, str]]:
    costs = report["preprocessing_us"]
    if not costs:
        return []
    return [
        ("processor time of mmroute for a request, mean", f"{costs['mean']:,.0f} us"),
        ("99 of 100 requests below", f"{costs['p99']:,.0f} us"),
    ]


def _curve(report: dict[str, Any]) -> _Plot:
    sizes = [each["blocks"] for each in report["one_cache"]]
    first, last = math.log(sizes[0]), math.log(sizes[-1])
    places = [(math.log(size) - first) / max(1e-9, last - first) for size in sizes]
    points = [(at, e["hit_rate"]) for at, e in zip(places, report["one_cache"], strict=True)]
    every = -(-len(sizes) // _MAX_TICKS)
    ticks = [(at, f"{n:,}") for at, n in zip(places, sizes, strict=True)][::every]
    return (
        "One cache",
        "One worker gets all requests. The larger its cache, the more tokens are cached.",
        lines("hit rate by cache size", [("one cache", points)], ticks, "blocks", "Hit rate"),
        *cache_table(report),
    )


def _policies(report: dict[str, Any]) -> _Plot:
    shown = [(e["policy"], e["hit_rate"], f"{e['hit_rate']:.1%}") for e in report["policies"]]
    fleet = f"{report['workers']} workers of {report['worker_blocks']:,} blocks"
    text = f"Hit rate of {fleet}, by the policy by which a router picks a worker."
    return ("Routing", text, bars("hit rate by routing", shown), *policy_table(report))


def _over_time(report: dict[str, Any]) -> _Plot:
    bins = report["one_cache_over_time"]
    named = [("one cache", bins)]
    named += [(e["policy"], e["over_time"]) for e in report["policies"] if e["policy"] in _SHOWN]
    stamps = [each["timestamp"] for each in bins]
    timed = None not in stamps and stamps[-1] > stamps[0]
    if timed:
        span = stamps[-1] - stamps[0]
        places = [(stamp - stamps[0]) / span for stamp in stamps]
        x_label, unit = next((each for each in _UNITS if span >= 2 * each[1]), ("seconds", 1000))
        ticks = [(n * unit / span, f"{n:g}") for n in _round_numbers(span / unit)]
    else:
        places = [n / max(1, len(bins) - 1) for n in range(len(bins))]
        count = report["requests"]
        whole = [int(n) for n in _round_numbers(count) if n == int(n)]
        x_label, ticks = "requests", [(n / count, _short(n)) for n in whole]
    series = [
        (name, [(at, each["hit_rate"]) for at, each in zip(places, row, strict=True)])
        for name, row in named
    ]
    reached = accumulate(each["requests"] for each in bins)
    rows = [
        (f"{count:,}", *(f"{row[n]['hit_rate']:.1%}" for _, row in named))
        for n, count in enumerate(reached)
    ]
    return (
        "Reuse over time",
        "The part of all tokens that is cached, in the course of the trace.",
        lines("hit rate over time", series, ticks, x_label, "Hit rate"),
        ("up to request", *(name for name, _ in named)),
        rows,
    )


def _losses(report: dict[str, Any]) -> _Plot:
    text = (
        f"{report['suspects']:,} requests share less than they could with an earlier one. The "
        "counts are of tokens that are the same in both after the part that differs."
    )
    if report["explained"] < report["suspects"]:
        text += (
            f" {report['explained']:,} pairs were explained, a sample weighted by loss; the counts "
            "are scaled to all pairs."
        )
    return (
        "Lost reuse by cause",
        text,
        bars(
            "lost tokens by cause",
            [(e["cause"], e["tokens"], f"{e['tokens']:,}") for e in report["losses"]],
        ),
        *loss_table(report),
    )


def _round_numbers(end: float) -> list[float]:
    """At most seven numbers from 0 to `end`, in steps of 1, 2 or 5 times a power of ten."""
    least = end / _MAX_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= least)
    return [number * step for number in range(int(end / step) + 1)]


def _short(count: int) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
