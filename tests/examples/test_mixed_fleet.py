"""The router of `examples/mixed_fleet.py`, over workers of three kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mixed_fleet


def test_each_kind_of_worker_is_found_under_its_own_hashes(
    small_model: Callable[[str], Path],
) -> None:
    report = mixed_fleet.run(str(small_model("small-qwen2.5-vl")))
    first, second = report[:3], report[3:]
    # No picture is known at first: each goes to an empty worker, of another kind.
    assert {name for name, held, _ in first} == {"new-0", "old-0", "sglang-0"}
    assert all(held == 0 for _, held, _ in first)
    # Asked anew, each picture goes where it is, whatever that worker's hashes are.
    assert [name for name, _, _ in second] == [name for name, _, _ in first]
    assert all(held > total / 2 for _, held, total in second)
