"""What is said of the version of a running engine."""

from __future__ import annotations

import pytest

from mmroute.engine import find_engine
from mmroute.engines.running import Evidence, running_engine

TOO_OLD = ("vllm", "0.12.0")
TOO_NEW = ("vllm", "0.34.0")


@pytest.mark.parametrize(
    ("engine", "said", "evidence"),
    [
        ("vllm", "0.33.0", Evidence.PROVED),
        ("vllm", "0.33.0+cu130", Evidence.PROVED),
        ("vllm", "0.31.0", Evidence.PROVED),
        ("vllm", "0.33.1", Evidence.UNKNOWN),  # nobody has seen it
        ("vllm", "0.33.0.post1", Evidence.UNKNOWN),
        ("vllm", "0.33", Evidence.UNKNOWN),
        ("vllm", "0.20.0", Evidence.READ),
        ("sglang", "0.5.23", Evidence.PROVED),
        ("sglang", "0.5.22", Evidence.UNKNOWN),
        (*TOO_OLD, Evidence.UNKNOWN),
        (*TOO_NEW, Evidence.UNKNOWN),
        ("vllm", "0.33.1rc1.dev7+g0a1b2c3", Evidence.UNKNOWN),
        ("vllm", "1.0.0", Evidence.UNKNOWN),
        ("vllm", "", Evidence.UNKNOWN),
        ("vllm", "nightly\nof today", Evidence.UNKNOWN),
        ("another", "0.33.0", Evidence.UNKNOWN),
    ],
)
def test_a_version_is_proved_read_or_unknown(engine: str, said: str, evidence: Evidence) -> None:
    running = running_engine(engine, said)
    assert running.evidence is evidence
    assert evidence in str(running)
    assert "\n" not in str(running)


@pytest.mark.parametrize(
    ("engine", "said", "matched", "says"),
    [
        ("vllm", "0.33.0", "vllm", ""),
        ("vllm", "0.27.0", "vllm==0.28", ""),
        ("vllm", "0.33.1", "vllm", "unknown"),
        ("vllm", "0.31.0", "vllm", "'vllm==0.31.0'"),
        ("vllm", "0.27.1", "vllm==0.28", ""),
        ("sglang", "0.5.23", "sglang", ""),
        ("vllm", "0.28.0", "vllm", "'vllm==0.28.0'"),
        ("vllm", "0.33.0", "vllm==0.28", "'vllm==0.33.0'"),
        ("sglang", "0.5.23", "vllm", "'sglang==0.5.23'"),
        (*TOO_OLD, "vllm", "unknown"),
        (*TOO_NEW, "vllm", "unknown"),
        ("vllm", "", "vllm", "unknown"),
    ],
)
def test_other_rules_than_those_matched_are_told(
    engine: str, said: str, matched: str, says: str
) -> None:
    warning = running_engine(engine, said).warning(find_engine(matched))
    assert says in warning
    assert bool(says) == bool(warning)
