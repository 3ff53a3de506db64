"""What SGLang's code lists, by its version: see `tools/generate_sglang_lists.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any


@cache
def listed(name: str, version: str) -> Sequence[Mapping[str, Any]]:
    """The entries of a list that hold for a version."""
    number, found = _number(version), _read(name)["entries"]
    return [
        entry
        for entry in found
        if _number(entry.get("since", "0")) <= number
        and ("until" not in entry or number <= _number(entry["until"]))
    ]


def read_versions(name: str) -> Sequence[str]:
    """The versions of which a list was read, the newest first."""
    return tuple(reversed(_read(name)["read"]))


@cache
def _read(name: str) -> Any:
    file = resources.files("mmroute.engines.sglang") / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))


def _number(version: str) -> tuple[int, ...]:
    """A version without a suffix such as rc1 or .post1."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
