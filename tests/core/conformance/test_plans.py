"""The encoder cache is planned as vLLM plans it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plan_vectors import PLANS, plan_problems
from small_models import ALL_MODELS, fingerprint

pytestmark = pytest.mark.conformance

_, *LINES = map(json.loads, PLANS.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("line", LINES, ids=[line["model"] for line in LINES])
def test_the_plan_is_the_engine_s(line: dict[str, Any], small_model: Callable[[str], Path]) -> None:
    name = line["model"]
    assert fingerprint(ALL_MODELS[name]()) == line["fingerprint"], "generate_plans.py asks again"
    assert list(plan_problems(small_model(name), line["plans"])) == []
