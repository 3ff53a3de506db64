"""A measurement as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from mmroute.answering.stages import Stage
from mmroute.lab.bench.latency import Hashing, Latency, Startup, Summary
from mmroute.lab.bench.mixes import Inexact
from mmroute.lab.bench.throughput import Throughput
from mmroute.reuse.fast_paths import CacheStats

_MEBIBYTE: Final = 1 << 20
_SHOWN: Final = 5  # inexact requests shown of each mix


@dataclass(frozen=True, slots=True)
class MeasuredMix:
    """The measurements of one mix.

    Attributes:
        name: the name of the mix.
        latency: the latency; None if no request has an answer.
        throughput: the throughput; None if no request has an answer.
        inexact: the requests that have no answer, and were not timed.
    """

    name: str
    latency: Latency | None
    throughput: Throughput | None
    inexact: Sequence[Inexact]


@dataclass(frozen=True, slots=True)
class Bench:
    """The measurements of one run of ``mmroute bench``.

    Attributes:
        model: the model's name, as the caller gave it.
        family: the model's family.
        encoder: the encoder, and the reason for its choice; empty for a model's own chat encoder.
        machine: the machine and the library versions.
        hashing: the settings of block hashes.
        mixes: the measured mixes.
        startup: the time and memory of loading the model in a fresh process.
    """

    model: str
    family: str
    encoder: str
    machine: dict[str, Any]
    hashing: Hashing
    mixes: Sequence[MeasuredMix]
    startup: Startup


def as_json(bench: Bench) -> dict[str, Any]:
    """The measurements as values for JSON. The names of fields end with their unit."""
    mixes = [
        {
            "mix": mix.name,
            **(asdict(mix.latency) if mix.latency else {}),
            **({"throughput": asdict(mix.throughput)} if mix.throughput else {}),
            "inexact": {
                "count": len(mix.inexact),
                "reasons": Counter(each.reason for each in mix.inexact),
                "examples": [asdict(each) for each in mix.inexact[:_SHOWN]],
            },
        }
        for mix in bench.mixes
    ]
    return asdict(bench) | {"mixes": mixes}


def as_lines(bench: Bench) -> Iterator[str]:
    """The measurements as lines of text."""
    yield from _head_lines(bench)
    for mix in bench.mixes:
        yield ""
        if mix.latency is None or mix.throughput is None:
            yield f"{mix.name}: not timed, no request has an answer"
        else:
            yield from _mix_lines(mix.latency, mix.throughput, bench.hashing)
        if mix.inexact:
            yield f"  {len(mix.inexact)} inexact, not timed:"
        for each in mix.inexact[:_SHOWN]:
            yield f"    {each.where}: {each.reason}: {each.message}"
        if len(mix.inexact) > _SHOWN:
            yield f"    and {len(mix.inexact) - _SHOWN} more"
    yield ""
    yield from _startup_lines(bench.startup)


def _head_lines(bench: Bench) -> Iterator[str]:
    yield f"{bench.model} ({bench.family}), encoder: {bench.encoder or 'mistral-common'}"
    where = bench.machine
    yield (
        f"{where['processor']}, {where['cores']} cores, load {where['load_average']}, "
        f"Python {where['python']}"
    )


def _mix_lines(latency: Latency, throughput: Throughput, hashing: Hashing) -> Iterator[str]:
    yield f"{latency.mix}: {latency.says}; {latency.token_ids} token IDs, {latency.images} images"
    yield f"  {'microseconds':<18}{'p50':>10}{'p95':>10}{'p99':>10}"
    for name, times in _rows(latency, hashing):
        yield f"  {name:<18}{times.p50:>10.1f}{times.p95:>10.1f}{times.p99:>10.1f}"
    if latency.no_hashes is not None:
        yield f"  no block hashes: {latency.no_hashes}"
    for what, reuse in (("texts", latency.text_reuse), ("block hashes", latency.hash_reuse)):
        if reuse is not None:
            yield f"  cache of {what}: {_reuse(reuse)}"
    again = "" if throughput.distinct else ", some of them more than once"
    yield (
        f"  throughput: {throughput.per_second:,.0f} requests/s in {throughput.processes} "
        f"processes ({throughput.requests} requests{again})"
    )


def _rows(latency: Latency, hashing: Hashing) -> Iterator[tuple[str, Summary]]:
    hashes = latency.stages_us.get(Stage.HASH)
    for stage, times in latency.stages_us.items():
        if stage is not Stage.HASH:
            yield stage.value, times
    yield "whole request", latency.whole_us
    yield "without encoding", latency.without_encoding_us
    if hashes is not None:
        yield f"+ hash ({hashing.algorithm})", hashes


def _reuse(reuse: CacheStats) -> str:
    if not reuse.hits + reuse.misses:
        return "took no part"
    return f"{reuse.hits} of {reuse.hits + reuse.misses} lookups found a known prefix"


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
