"""A measurement as a table, as JSON and as a plot."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mmroute.bench.builds import Comparison
from mmroute.bench.latency import Hashing, Latency
from mmroute.bench.mixes import Inexact
from mmroute.bench.startup import Startup
from mmroute.bench.summary import Summary
from mmroute.bench.throughput import Throughput
from mmroute.errors import MmrouteError, Reason
from mmroute.fast_paths import ReuseStats
from mmroute.stages import Stage

__all__ = ["Bench", "as_json", "as_lines", "check_plot", "comparison_lines", "plot"]

_MEBIBYTE: Final = 1 << 20
_SHOWN: Final = 5  # inexact requests of each mix


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything one run of ``mmroute bench`` measured.

    Attributes:
        model: as the caller named it.
        family: of the model.
        encoder: who encoded, and why; empty for a model's own chat encoder.
        machine: where it was measured.
        hashing: how block hashes were asked for.
        latencies: of the mixes that have answers.
        unanswered: the mixes that have none, and why.
        throughputs: of the mixes that have answers.
        startup: loading the model in a fresh process.
    """

    model: str
    family: str
    encoder: str
    machine: dict[str, Any]
    hashing: Hashing
    latencies: tuple[Latency, ...]
    unanswered: tuple[tuple[str, tuple[Inexact, ...]], ...]
    throughputs: tuple[Throughput, ...]
    startup: Startup


def as_json(bench: Bench) -> dict[str, Any]:
    """The same for machines: microseconds, seconds, bytes, as the names say."""
    mixes = []
    throughputs = {found.mix: found for found in bench.throughputs}
    for found in bench.latencies:
        throughput = throughputs[found.mix]
        mixes.append({
            "mix": found.mix,
            "says": found.says,
            "token_ids": found.token_ids,
            "images": found.images,
            "whole_us": asdict(found.whole),
            "without_encoding_us": asdict(found.without_encoding),
            "stages_us": {stage.value: asdict(times) for stage, times in found.stages.items()},
            "no_hashes": found.no_hashes or None,
            "text_reuse": found.text_reuse and asdict(found.text_reuse),
            "hash_reuse": found.hash_reuse and asdict(found.hash_reuse),
            "throughput": {**asdict(throughput), "per_second": throughput.per_second},
            "inexact": _inexact_json(found.inexact),
        })  # fmt: skip
    mixes += [{"mix": name, "inexact": _inexact_json(why)} for name, why in bench.unanswered]
    return {
        "model": bench.model,
        "family": bench.family,
        "encoder": bench.encoder,
        "machine": bench.machine,
        "hashing": asdict(bench.hashing),
        "mixes": mixes,
        "startup": asdict(bench.startup),
    }


def as_lines(bench: Bench) -> Iterator[str]:
    """The same for people."""
    yield f"{bench.model} ({bench.family}), encoder: {bench.encoder or 'mistral-common'}"
    where = bench.machine
    yield (
        f"{where['processor']}, {where['cores']} cores, load {where['load_average']}, "
        f"Python {where['python']}"
    )
    for latency, throughput in zip(bench.latencies, bench.throughputs, strict=True):
        yield ""
        yield from _mix_lines(latency, bench.hashing)
        again = "" if throughput.distinct else ", some of them more than once"
        yield (
            f"  throughput: {throughput.per_second:,.0f} requests/s in {throughput.processes} "
            f"processes ({throughput.requests} requests{again})"
        )
    for name, inexact in bench.unanswered:
        yield ""
        yield f"{name}: not timed, no request has an answer"
        yield from _inexact_lines(inexact)
    yield ""
    yield from _startup_lines(bench.startup)


def comparison_lines(found: Comparison) -> Iterator[str]:
    """The comparison of two builds, for people."""
    yield f"{found.mix}: {found.says}"
    yield (
        f"  {'microseconds':<18}{'A least':>10}{'B least':>10}{'A median':>10}{'B median':>10}"
        f"{'B / A':>8}   19 times of 20 within"
    )
    for name, ratio in found.ratios.items():
        times = "".join(f"{time:>10.1f}" for time in (*ratio.least, *ratio.medians))
        yield f"  {name:<18}{times}{ratio.median:>8.3f}   {ratio.low:.3f} to {ratio.high:.3f}"


def _mix_lines(found: Latency, hashing: Hashing) -> Iterator[str]:
    yield f"{found.mix}: {found.says}; {found.token_ids} token IDs, {found.images} images"
    yield f"  {'microseconds':<18}{'p50':>10}{'p95':>10}{'p99':>10}"
    for stage, times in found.stages.items():
        if stage is not Stage.HASH:
            yield _row(stage.value, times)
    yield _row("whole request", found.whole)
    yield _row("without encoding", found.without_encoding)
    if Stage.HASH in found.stages:
        yield _row(f"+ hash ({hashing.algorithm})", found.stages[Stage.HASH])
    else:
        yield f"  no block hashes: {found.no_hashes}"
    for what, reuse in (("texts", found.text_reuse), ("block hashes", found.hash_reuse)):
        if reuse is not None:
            yield f"  cache of {what}: {_reuse(reuse)}"
    yield from _inexact_lines(found.inexact)


def _row(name: str, times: Summary) -> str:
    return f"  {name:<18}{times.p50:>10.1f}{times.p95:>10.1f}{times.p99:>10.1f}"


def _reuse(reuse: ReuseStats) -> str:
    if not reuse.hits + reuse.misses:
        return "took no part"
    return f"{reuse.hits} of {reuse.hits + reuse.misses} lookups found a known beginning"


def _inexact_lines(inexact: Sequence[Inexact]) -> Iterator[str]:
    if inexact:
        yield f"  {len(inexact)} inexact, not timed:"
    for each in inexact[:_SHOWN]:
        yield f"    {each.where}: {each.reason}: {each.message}"
    if len(inexact) > _SHOWN:
        yield f"    and {len(inexact) - _SHOWN} more"


def _inexact_json(inexact: Sequence[Inexact]) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    for each in inexact:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    return {
        "count": len(inexact),
        "reasons": reasons,
        "examples": [asdict(each) for each in inexact[:_SHOWN]],
    }


def _startup_lines(startup: Startup) -> Iterator[str]:
    yield "in a fresh process:"
    yield (
        f"  import {startup.import_seconds:.3f} s, from_pretrained {startup.load_seconds:.2f} s, "
        f"encoder ready after {startup.ready_seconds:.2f} s"
    )
    loaded = startup.rss_loaded_bytes - startup.rss_imported_bytes
    again = startup.rss_again_bytes - startup.rss_loaded_bytes
    yield (
        f"  memory: {loaded / _MEBIBYTE:.0f} MiB with the libraries that loading imports, "
        f"{again / _MEBIBYTE:.0f} MiB when loaded once more"
    )


def check_plot() -> None:
    """See that plots can be drawn, before anything is measured.

    Raises:
        MmrouteError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MmrouteError(
            Reason.INVALID_REQUEST, "--plot needs matplotlib: pip install 'mmroute[bench]'"
        )


def plot(bench: Bench, path: Path) -> None:
    """Draw the stages of every mix as bars, with the p99 of the whole request as a mark.

    Raises:
        MmrouteError: matplotlib is not installed.
    """
    check_plot()
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.6 * len(bench.latencies)), dpi=120)
    names = [found.mix for found in bench.latencies]
    left = [0.0] * len(names)
    for stage in Stage:
        widths = [found.stages[stage].p50 if stage in found.stages else 0.0
                  for found in bench.latencies]  # fmt: skip
        if any(widths):
            axes.barh(names, widths, left=left, label=stage.value)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    slowest = [found.whole.p99 for found in bench.latencies]
    axes.plot(slowest, names, "k|", markersize=14, label="whole without hash, p99")
    axes.set_xlabel("microseconds, medians")
    axes.set_title(f"{Path(bench.model).name}: one request by stage")
    axes.invert_yaxis()
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(path, bbox_inches="tight")  # the legend stands beside the axes
    pyplot.close(figure)
