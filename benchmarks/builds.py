"""Compare two builds of mmroute, or two of its settings, in one run.

    python benchmarks/builds.py MODEL A B [--mix NAME] [--repeat N] [--json]

A and B are each an interpreter, a virtual environment, a source tree, or settings of `FastPaths`
such as ``encoder=tokenizers,chat_cache_bytes=0``. Each runs in a process of its own. Both answer
the same requests in turns, so that whatever else the machine does meets both, and their answers
must be equal. The table has ratios of pairs with the interval that holds their median 19 times
of 20, and the least time of each, which other work disturbs least. Times are processor time,
except for "without encoding", which is elapsed time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.children import Build, Child, in_turns, this_build
from benchmarks.machine import machine
from benchmarks.mixes import MIXES, Mix, chat_request, conversation_mix, read_mix
from mmroute import FastPaths, MmrouteError, Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.reuse.fast_paths import REFERENCE_ONLY

_MIXES: Final[Mapping[str, Mix]] = {
    **MIXES,
    "5-turns": conversation_mix("5-turns", 5),
    "200-turns": conversation_mix("200-turns", 200),
    "book": Mix("book", "100,000 words", partial(chat_request, words=100_000)),
}
_QUANTITIES: Final[tuple[str, ...]] = ("whole", "without encoding", "block hashes")
_Z: Final = 1.96  # 95 of 100 of a normal distribution


def build_of(name: str) -> Build:
    """The build that an argument names.

    Raises:
        ValueError: it is no interpreter, virtual environment or source tree, and no settings.
    """
    path = Path(name)
    if (path / "bin" / "python").is_file():
        path = path / "bin" / "python"
    if path.is_file():
        return Build(name, str(path.absolute()), "", {})
    if (path / "mmroute" / "__init__.py").is_file():
        return Build(name, sys.executable, str(path.absolute()), {})
    kinds = {field.name: field.type for field in fields(FastPaths)}
    settings: dict[str, Any] = {}
    for setting in name.split(","):
        key, equals, value = setting.partition("=")
        if not equals or key not in kinds:
            raise ValueError(
                f"{name} is no interpreter, environment or source tree; and {setting!r} is no "
                f"setting such as {', '.join(kinds)}, as in encoder=tokenizers"
            )
        settings[key] = int(value) if value.isdecimal() else value
    FastPaths(**settings)
    return this_build(settings, name)


@dataclass(frozen=True, slots=True)
class Ratio:
    """What the second build takes of the time of the first.

    Attributes:
        median: the median of the ratios of all pairs.
        low: the lower end of the interval that holds the median 19 times of 20.
        high: the upper end.
        least: the least time of each build, in microseconds.
        medians: the median time of each build, in microseconds.
        pairs: the number of pairs.
    """

    median: float
    low: float
    high: float
    least: tuple[float, float]
    medians: tuple[float, float]
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two builds, and one mix.

    Attributes:
        mix: the name of the mix.
        says: what is in a request.
        ratios: one for the whole request, one without encoding, and one for its block hashes;
            a quantity that one of the builds cannot tell is left out.
    """

    mix: str
    says: str
    ratios: Mapping[str, Ratio]


def ratio_of(pairs: Sequence[tuple[int, int]]) -> Ratio:
    """The median of ratios, with its interval by order statistics.

    Args:
        pairs: nanoseconds of the first and of the second build.
    """
    ratios = sorted(second / first for first, second in pairs)
    count = len(ratios)
    outside = max(0, math.floor((count - _Z * math.sqrt(count)) / 2))
    times = list(zip(*pairs, strict=True))
    least, medians = (
        tuple(round(of(each) / 1000, 2) for each in times) for of in (min, statistics.median)
    )
    return Ratio(
        round(statistics.median(ratios), 4),
        round(ratios[outside], 4),
        round(ratios[count - 1 - outside], 4),
        (least[0], least[1]),
        (medians[0], medians[1]),
        count,
    )


def compare(
    builds: tuple[Build, Build], mixes: Sequence[Mix], setup: Mapping[str, Any], *, repeat: int
) -> Iterator[Comparison]:
    """Compare two builds, mix by mix.

    Args:
        builds: the first and the second.
        mixes: the requests; of a mix without an answer there is no comparison.
        setup: as for `Child`.
        repeat: pairs of each mix.

    Raises:
        MmrouteError: a build ended early, or the two gave different answers.
    """
    with Child(builds[0], setup) as first, Child(builds[1], setup) as second:
        first.receive()
        second.receive()
        for mix in mixes:
            pairs: dict[str, list[tuple[int, int]]] = {}
            first.warm_up(mix)
            second.warm_up(mix)
            # Watches take time themselves: every other request has one.
            for _, *both in in_turns(first, second, mix, repeat, watched=(False, True)):
                times = [_times(answer) for answer in both]
                for name in times[0].keys() & times[1].keys():
                    pairs.setdefault(name, []).append((times[0][name], times[1][name]))
            if pairs:
                ratios = {name: ratio_of(pairs[name]) for name in _QUANTITIES if name in pairs}
                yield Comparison(mix.name, mix.says, ratios)


def _times(answer: Mapping[str, Any]) -> dict[str, int]:
    """Processor time in nanoseconds; of a request with a watch, which goes by the wall, that."""
    if "refusal" in answer:
        return {}
    hashes = {"block hashes": answer["hash_cpu"]} if "hash_cpu" in answer else {}
    stages = answer["stages"]
    if stages is None:
        return {"whole": answer["cpu"]} | hashes
    return {"without encoding": answer["wall"] - stages.get("encode", 0)} | hashes


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


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two builds, and print what was found.

    Returns:
        0, or 1 if no request has an answer or the builds differ in one.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        builds = (build_of(arguments.first), build_of(arguments.second))
    except ValueError as error:
        parser.error(str(error))
    names = ("model", "backend", "model_id")
    loading = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    hashing = {"algorithm": arguments.algorithm, "block_size": arguments.block_size, "seed": "0"}
    setup: dict[str, Any] = {"loading": loading, "hashing": hashing}
    if arguments.engine_args:
        setup["engine"] = {"arguments": arguments.engine_args}
    comparisons = []
    try:
        mixes = _mixes(arguments, loading)
        for found in compare(builds, mixes, setup, repeat=arguments.repeat):
            comparisons.append(found)
            if not arguments.json:
                print("\n".join(comparison_lines(found)), flush=True)
    except MmrouteError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        where = {"machine": machine(), "builds": [asdict(build) for build in builds]}
        print(json.dumps({**where, "mixes": [asdict(found) for found in comparisons]}))
    return 0 if comparisons else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("first", metavar="A")
    parser.add_argument("second", metavar="B")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--mix", metavar="NAME", choices=[*_MIXES], help=", ".join(_MIXES))
    which.add_argument("--input", metavar="FILE", type=Path, help="request lines")
    parser.add_argument("--repeat", metavar="N", type=int, default=100, help="pairs of each mix")
    parser.add_argument("--algorithm", default="sha256", help="of the block hashes")
    parser.add_argument("--block-size", metavar="N", type=int, default=16)
    parser.add_argument("--backend", help="the engine to match, such as vllm==0.28")
    parser.add_argument("--model-id", metavar="NAME", help="the engine's own model string")
    parser.add_argument("--engine-args", metavar="ARGS", help="the engine's command line")
    parser.add_argument("--json", action="store_true")
    return parser


def _mixes(arguments: argparse.Namespace, loading: Mapping[str, Any]) -> Sequence[Mix]:
    if arguments.mix is not None:
        return [_MIXES[arguments.mix]]
    if arguments.input is None:
        return [*MIXES.values()]
    settings = VllmSettings.from_args(arguments.engine_args or "")
    reference = Normalizer.from_pretrained(
        **loading, engine_settings=settings, fast_paths=REFERENCE_ONLY
    )
    return [read_mix(arguments.input, reference)]


if __name__ == "__main__":
    sys.exit(main())
