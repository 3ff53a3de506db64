"""Models on a whole engine, as ``mmroute prove`` compares them.

The environment of an engine takes 3.5 GB, and minutes to make: that is done only where
MMROUTE_PROVE="DIR DIR" names models. Where there is one, a few models are proved in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from paths import real_models

from mmroute.lab.engines import PROVERS
from mmroute.lab.engines.environment import cache_directory
from mmroute.lab.engines.sglang.environment import NEWEST as SGLANG
from mmroute.lab.engines.vllm.environment import NEWEST, PACKAGE

pytestmark = pytest.mark.process

SERVED: Final = {
    "vllm": "PYTHONHASHSEED=0 vllm serve org/model --max-model-len 8192",
    "sglang": "sglang serve org/model --page-size 32",
}
ENVIRONMENTS: Final = {"vllm": f"{PACKAGE}-{NEWEST}", "sglang": f"sglang-{SGLANG}"}
MODELS: Final = {
    ("vllm", "MMROUTE_MODELS"): ("qwen2.5-vl-3b-instruct", "pixtral-12b-2409"),
    ("vllm", "MMROUTE_SMALL_MODELS"): ("qwen3.5",),  # it has layers with a state
    ("sglang", "MMROUTE_MODELS"): ("qwen3-vl-2b-instruct",),
}
UNDECIDED: Final = 3
SECONDS: Final = 240


def models() -> list[tuple[str, str]]:
    """The engines, each with a model."""
    if named := os.environ.get("MMROUTE_PROVE"):
        return [(engine, model) for engine in SERVED for model in named.split()]
    return [
        (engine, str(root / name))
        for (engine, variable), names in MODELS.items()
        if (cache_directory() / ENVIRONMENTS[engine] / "ready").exists()
        if (root := real_models(variable)) is not None
        for name in names
    ]


@pytest.mark.parametrize(("engine", "model"), models())
def test_a_model_is_proved(engine: str, model: str) -> None:
    prover = PROVERS.find(engine)
    prover.engine_environment(prover.NEWEST, print)
    command = [sys.executable, "-m", "mmroute", "prove", model, "--backend", engine]
    command += ["--engine-args", SERVED[engine]]
    try:
        ended = subprocess.run(command, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"not proved in {SECONDS} s")
    if ended.returncode == UNDECIDED:
        pytest.skip("the engine cannot be had")
    assert ended.returncode == 0
