"""Recorded answers of the engine, as files that users of the package have."""

from __future__ import annotations

import json
from pathlib import Path

from paths import VECTORS


def without_arguments(name: str, directory: Path) -> Path:
    """The vectors of a small model whose requests set no arguments of processors.

    The engine ignores arguments that it does not know, and we refuse them by name.
    """
    lines = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "mm_processor_kwargs" not in json.loads(line)]
    path = directory / f"{name}.jsonl"
    path.write_text("".join(kept), encoding="utf-8")
    return path
