"""Change what strangers send at random, and look for errors that name no reason.

    python tools/fuzz.py [TARGET ...] [--runs 10000] [--first SEED] [--seconds 1] [--coverage]

The targets are those of ``tests/helpers/fuzzing.py``, all of them by default. Each run has a seed,
by which it is made again. It fails if it raises another error than those with a reason, or takes
longer than ``--seconds``. With ``--coverage``, entries that reach code that none reached before
come to the corpus; this needs atheris.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from vector_files import TESTS

sys.path.insert(0, str(TESTS / "helpers"))


def main() -> int:
    """The number of targets that failed."""
    from fuzzing import TARGETS, run

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", metavar="TARGET", nargs="*", default=[*TARGETS])
    parser.add_argument("--runs", type=int, default=10_000, help="runs of each target")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first run")
    parser.add_argument("--seconds", type=float, default=1.0, help="the longest time of a run")
    parser.add_argument("--coverage", action="store_true", help="let atheris choose the runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if arguments.coverage:
        return guided(arguments.targets, arguments.runs, arguments.seconds)
    failed = 0
    for name in arguments.targets:
        found: Counter[str] = Counter()
        for seed in range(arguments.first, arguments.first + arguments.runs):
            start = time.process_time()
            try:
                run(TARGETS[name], seed)
            except Exception as error:  # noqa: BLE001 - any other error is what is looked for
                at = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}"
                if not found[what]:
                    traceback.print_exc()
                    print(f"{name}: seed {seed}: {what}", flush=True)
                found[what] += 1
            if (took := time.process_time() - start) > arguments.seconds:
                print(f"{name}: seed {seed}: {took:.2f} s", flush=True)
                found["slow"] += 1
        print(f"{name}: {arguments.runs} runs, {found.total()} failed {dict(found)}", flush=True)
        failed += bool(found)
    return failed


def guided(names: list[str], runs: int, seconds: float) -> int:
    """Runs that atheris chooses, of the first target that is named."""
    import atheris

    with atheris.instrument_imports(include=["mmroute"]):
        from fuzzing import ERRORS, TARGETS

    target = TARGETS[names[0]]
    corpus = target.corpus()

    def changed(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        return target.changed(data if len(data) > 1 else draw.choice(corpus), draw)[:most]

    def read(data: bytes) -> None:
        start = time.process_time()
        with contextlib.suppress(*ERRORS):
            target.read(data)
        if time.process_time() - start > seconds:
            raise TimeoutError(f"a run of more than {seconds} s")

    options = [f"-runs={runs}", "-max_len=200000", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options], read, custom_mutator=changed)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
