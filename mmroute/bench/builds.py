"""Compare two builds of mmroute, or two of its settings, in one run.

Each is a process of its own. They answer the same requests in turns, so that whatever else the
machine does meets both. The figures are ratios of pairs, with the interval in which their median
is, 19 times of 20; and the least time of each, which other work disturbs least.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from mmroute.bench import answering
from mmroute.bench.mixes import Mix
from mmroute.errors import MmrouteError, Reason
from mmroute.fast_paths import FastPaths

__all__ = ["Build", "Comparison", "Ratio", "compare", "ratio_of"]

_WARM_UP: Final = 5
_IN_A_ROW: Final = 10  # requests of one build before the other's turn: a server at work
# Their numbers are none that a measured request has.
_UNTIMED: Final = range(1_000_000_000, 1_000_000_000 + _WARM_UP)
_QUANTITIES: Final = ("whole", "without encoding", "block hashes")
_Z: Final = 1.96  # 95 of 100 of a normal distribution


@dataclass(frozen=True, slots=True)
class Build:
    """What is compared.

    Attributes:
        name: as it was given.
        python: the interpreter that runs it.
        tree: a source tree in the place of what is installed there; empty for none.
        fast_paths: its settings.
    """

    name: str
    python: str
    tree: str
    fast_paths: Mapping[str, Any]

    @classmethod
    def of(cls, name: str) -> Build:
        """What a name means: an interpreter, a virtual environment, a source tree, or settings.

        Settings are those of `FastPaths`, as in ``encoder=tokenizers,chat_cache_bytes=0``.

        Raises:
            ValueError: it is none of these.
        """
        path = Path(name)
        if (path / "bin" / "python").is_file():
            path = path / "bin" / "python"
        if path.is_file():
            return cls(name, str(path.absolute()), "", {})
        if (path / "mmroute" / "__init__.py").is_file():
            return cls(name, sys.executable, str(path.absolute()), {})
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
        return cls(name, sys.executable, str(Path(__file__).parents[2]), settings)


@dataclass(frozen=True, slots=True)
class Ratio:
    """What the second build takes of the time of the first.

    Attributes:
        median: of the ratios of all pairs.
        low: the median is not below, 19 times of 20.
        high: nor above.
        least: the least time of each, in microseconds.
        medians: their medians.
        pairs: how many there are.
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
        mix: its name.
        says: what is in a request.
        ratios: of the whole request, without encoding, and of its block hashes; without what one
            of the builds cannot tell.
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
    builds: tuple[Build, Build],
    mixes: Sequence[Mix],
    *,
    model: str,
    loading: Mapping[str, Any],
    hashing: Mapping[str, Any],
    repeat: int,
) -> Iterator[Comparison]:
    """Compare two builds, mix by mix.

    Args:
        builds: the first and the second.
        mixes: the requests; of a mix without an answer there is no comparison.
        model: as for `Normalizer.from_pretrained`.
        loading: more arguments of that, as JSON has them.
        hashing: arguments of `Routing.block_hashes`.
        repeat: pairs of each mix.

    Raises:
        MmrouteError: a build ended early, or the two gave different answers.
    """
    setup = {"model": model, "loading": loading, "hashing": hashing}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_process(build)) for build in builds]
        for build, process in zip(builds, processes, strict=True):
            _asked(process, [{**setup, "fast_paths": build.fast_paths}])
        for mix in mixes:
            comparison = _comparison(processes, mix, repeat)
            if comparison is not None:
                yield comparison


@contextlib.contextmanager
def _process(build: Build) -> Iterator[subprocess.Popen[str]]:
    script = Path(answering.__file__).read_text(encoding="utf-8")
    # What is installed there, and not what this process was told to import.
    environment = {**os.environ, "PYTHONPATH": build.tree}
    # -P: the working directory must not come before what is compared.
    process = subprocess.Popen(  # noqa: S603 - an interpreter that the user names, a script of ours
        [build.python, "-P", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _asked(
    process: subprocess.Popen[str], requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What a process answers to some requests, one after the other."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    with contextlib.suppress(BrokenPipeError):
        process.stdin.writelines(json.dumps(each, default=asdict) + "\n" for each in requests)
        process.stdin.flush()
    lines = [process.stdout.readline() for _ in requests]
    if not all(lines):
        raise MmrouteError(
            Reason.SELF_CHECK_FAILED, "a build ended early; its own message stands above"
        )
    return list(map(json.loads, lines))


def _comparison(
    processes: Sequence[subprocess.Popen[str]], mix: Mix, repeat: int
) -> Comparison | None:
    for process in processes:
        _asked(process, [*mix.before(), *map(mix.request, _UNTIMED)])
    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in _QUANTITIES}
    for start in range(0, repeat, _IN_A_ROW):
        numbers = range(start, min(start + _IN_A_ROW, repeat))
        requests = [mix.request(number) for number in numbers]
        # Who comes first finds other things in the processor's caches.
        order = (0, 1) if start % (2 * _IN_A_ROW) else (1, 0)
        answers = {at: _asked(processes[at], requests) for at in order}
        for number, first, second in zip(numbers, answers[0], answers[1], strict=True):
            if (first["digest"], first["refusal"]) != (second["digest"], second["refusal"]):
                raise MmrouteError(
                    Reason.SELF_CHECK_FAILED,
                    f"{mix.name}: the builds give different answers to request {number}",
                )
            for name, listed in pairs.items():
                if name in first and name in second and not first["refusal"]:
                    listed.append((first[name], second[name]))
    ratios = {name: ratio_of(listed) for name, listed in pairs.items() if listed}
    return Comparison(mix.name, mix.says, ratios) if ratios else None
