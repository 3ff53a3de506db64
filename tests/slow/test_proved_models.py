"""Models on a whole engine, as ``mmroute prove`` compares them.

Its environment takes 3.5 GB, and minutes to make: that is done only where MMROUTE_PROVE="DIR DIR"
names models. Where there is one, three models are proved in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from paths import real_models

from mmroute.lab.engines.environment import cache_directory
from mmroute.lab.engines.vllm.environment import NEWEST, PACKAGE, engine_environment

pytestmark = pytest.mark.process

SERVED: Final = "PYTHONHASHSEED=0 vllm serve org/model --max-model-len 8192"
UNDECIDED: Final = 3
SECONDS: Final = 240


def models() -> list[str]:
    if named := os.environ.get("MMROUTE_PROVE"):
        return named.split()
    if not (cache_directory() / f"{PACKAGE}-{NEWEST}" / "ready").exists():
        return []
    of = {
        "MMROUTE_MODELS": ("qwen2.5-vl-3b-instruct", "pixtral-12b-2409"),
        "MMROUTE_SMALL_MODELS": ("qwen3.5",),  # it has layers with a state
    }
    return [
        str(root / name)
        for variable, names in of.items()
        if (root := real_models(variable)) is not None
        for name in names
    ]


@pytest.fixture(scope="module")
def engine() -> None:
    engine_environment(NEWEST, print)


@pytest.mark.parametrize("model", models())
@pytest.mark.usefixtures("engine")
def test_a_model_is_proved(model: str) -> None:
    command = [sys.executable, "-m", "mmroute", "prove", model, "--engine-args", SERVED]
    try:
        ended = subprocess.run(command, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"not proved in {SECONDS} s")
    if ended.returncode == UNDECIDED:
        pytest.skip("the engine cannot be had")
    assert ended.returncode == 0
