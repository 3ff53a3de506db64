"""Some runs of each target of `fuzzing`; `tools/fuzz.py` makes any number."""

from __future__ import annotations

import random

import pytest
from fuzzing import TARGETS, run

_RUNS = {"requests": 60, "bodies": 60, "specs": 60}


@pytest.mark.parametrize("name", TARGETS)
def test_what_strangers_send_is_read_or_refused(name: str) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + _RUNS.get(name, 300)):
        try:
            run(TARGETS[name], seed)
        except Exception as error:
            raise AssertionError(f"python tools/fuzz.py {name} --first {seed} --runs 1") from error
