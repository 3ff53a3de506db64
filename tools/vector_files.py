"""Files of vectors: where they are, and how generators write them.

Importing this puts the modules of the tests, and mmroute, where a program finds them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests"
VECTORS: Final = TESTS / "core" / "conformance" / "vectors"

ANSWERS: Final = frozenset({"expect", "refused", "events"})
_PLACES: Final = (
    TESTS / "helpers",
    TESTS / "core" / "conformance",
    ROOT,
)
sys.path[:0] = [str(TESTS / place) for place in _PLACES]


def take_no_arguments(doc: str | None) -> None:
    """Only --help."""
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=doc, formatter_class=formatter).parse_args()


def write_lines(path: Path, lines: Sequence[Any]) -> None:
    """Write a file of vectors, whose first line says what the others are of."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    answers = [line.get("expect", line) for line in lines]
    refused = sum(isinstance(answer, dict) and "refused" in answer for answer in answers)
    print(f"{path.name}: {len(lines) - 1} lines, {refused} refused", flush=True)


def requests_of(path: Path) -> list[dict[str, Any]]:
    """The requests of a file of vectors, without their answers.

    They are written there and nowhere else: a new one is a line without an answer.
    """
    _, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line)
    return [{k: v for k, v in line.items() if k not in ANSWERS} for line in lines]


def runs(values: Iterable[Any]) -> list[list[Any]]:
    """Each value, and how often it stands there in a row."""
    return [[value, len(list(run))] for value, run in itertools.groupby(values)]
