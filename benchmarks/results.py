"""Measure everything, and write RESULTS.md and its plots.

    python benchmarks/results.py MODEL_DIR [--vllm-python PATH] [--out benchmarks/RESULTS.md]

MODEL_DIR is a directory of Qwen2.5-VL. PATH is the interpreter of an environment that has vLLM;
without it, vLLM's lines are named as not run. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.growth_parts import conversation_part, linear_part
from benchmarks.load_parts import others_part, startup_part, throughput_part
from benchmarks.page import Aim, Part, Subject, table
from benchmarks.peer_parts import http_part, processor_part
from benchmarks.request_parts import pictures_part, request_part
from mmroute import FastPaths, ModelError, Normalizer
from mmroute.bench.machine import machine
from mmroute.bench.report import check_plot
from mmroute.fast_paths import REFERENCE_ONLY


def main() -> None:
    """Run all parts, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", metavar="MODEL_DIR", type=Path)
    parser.add_argument("--vllm-python", metavar="PATH", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to try the script")
    arguments = parser.parse_args()
    if not arguments.out.parent.is_dir():
        parser.error(f"--out: there is no directory {arguments.out.parent}")
    check_plot()
    before = os.getloadavg()
    started = time.monotonic()
    subject = _subject(arguments.model.resolve(), 40 if arguments.quick else 1000)
    parts = [
        # Fresh processes first: later on this one holds models of its own.
        startup_part(subject, rounds=1 if arguments.quick else 5),
        request_part(subject),
        conversation_part(subject),
        pictures_part(subject),
        linear_part(subject),
        throughput_part(subject),
        others_part(subject),
        http_part(subject, arguments.vllm_python),
        processor_part(subject, arguments.vllm_python),
    ]
    minutes = (time.monotonic() - started) / 60
    plots = _draw(parts, arguments.out.parent)
    page = _page(subject, parts, plots, _where(before, minutes))
    arguments.out.write_text("\n".join(page) + "\n", encoding="utf-8")


def _subject(directory: Path, repeat: int) -> Subject:
    normalizer = Normalizer.from_pretrained(directory)
    normalizer.stats()
    reference = Normalizer.from_pretrained(directory, fast_paths=REFERENCE_ONLY)
    whole: Normalizer | None = None
    try:
        alone = FastPaths("fastokens", text_cache_bytes=0, hash_cache_bytes=0)
        whole = Normalizer.from_pretrained(directory, fast_paths=alone)
    except ModelError as error:
        _say(str(error))
    return Subject(directory, normalizer, reference, whole, repeat, _say)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)  # noqa: T201 - progress of a script


def _where(before: Sequence[float], minutes: float) -> list[str]:
    found = machine()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    first, last = (
        ", ".join(f"{value:.2f}" for value in load) for load in (before, os.getloadavg())
    )
    return [
        (
            f"{time.strftime('%Y-%m-%d')}. {found['processor']}, {found['cores']} cores, "
            f"{found['system']}, Python {found['python']}; {versions}. One run of "
            f"{minutes:.0f} minutes; "
            f"load average (1, 5, 15 minutes) before it {first}, after it {last}."
        ),
        "",
    ]


def _page(
    subject: Subject, parts: Sequence[Part], plots: dict[str, str], where: Sequence[str]
) -> list[str]:
    aims: list[Aim] = [aim for part in parts for aim in part.aims]
    not_run = [reason for part in parts for reason in part.not_run]
    encoder = subject.normalizer.stats().encoder
    lines = [
        "# Results", "",
        (f"{subject.name}, encoder {encoder.engine if encoder else '-'}. Written by "
        "`python benchmarks/results.py MODEL_DIR --vllm-python PATH`; times mean something beside "
        "each other, of one run on one machine, and little beside those of other machines."), "",
        *where,
        ("Every timed answer was compared: mmroute's with that of `tokenizers` alone without any "
        "cache, the peers' with mmroute's. Texts are English words drawn from a list (seeded, "
        "common ones more often), new for every timed request; where a cache took "
        "part, it is said."),
        "",
        *table(("what", "measured", "target", ""), [aim.row() for aim in aims]),
        *(["Not run:", "", *(f"- {reason}" for reason in not_run), ""] if not_run else []),
    ]  # fmt: skip
    for part in parts:
        lines += [f"## {part.title}", "", *part.lines]
        if part.title in plots:
            lines += [f"![{part.title}]({plots[part.title]})", ""]
    return lines[:-1] if lines[-1] == "" else lines


def _draw(parts: Sequence[Part], directory: Path) -> dict[str, str]:
    """One plot for each part that has curves: title -> file name."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    plots = {}
    for part in parts:
        curves = {name: points for name, points in part.curves.items() if any(y for _, y in points)}
        if not curves:
            continue
        figure, axes = pyplot.subplots(figsize=(7, 4), dpi=110)
        for name, points in curves.items():
            axes.loglog(*zip(*points, strict=True), marker="o", label=name)
        axes.set_ylabel("microseconds, p50")
        axes.set_xlabel("turns" if "turn" in part.title else "size")
        axes.set_title(part.title)
        axes.grid(visible=True, which="both", alpha=0.2)
        axes.legend(fontsize=8)
        figure.tight_layout()
        plots[part.title] = f"{part.title.lower().replace(' ', '_')}.png"
        figure.savefig(directory / plots[part.title])
        pyplot.close(figure)
    return plots


if __name__ == "__main__":
    main()
