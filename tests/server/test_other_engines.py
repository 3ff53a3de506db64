"""Engines for which ``mmroute serve`` has no routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_helpers import process
from small_models import SMALL_MODELS, write_model


@pytest.mark.process
def test_no_server_speaks_vllm_s_protocol_for_it(tmp_path: Path) -> None:
    model = write_model(SMALL_MODELS["small-qwen2.5-vl"](), tmp_path / "model")
    options = (str(model), "--backend", "sglang", "--uds", str(tmp_path / "socket"))
    with process(*options, log=tmp_path / "log") as server:
        assert server.wait(60) == 1
    assert "the routes of mmroute serve are vLLM's" in (tmp_path / "log").read_text()
