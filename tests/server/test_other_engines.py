"""Engines for which ``mmroute serve`` has no routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_helpers import process
from small_models import SMALL_MODELS, write_model


@pytest.mark.process
@pytest.mark.parametrize("started", ["", "sglang serve --page-size 32"])
def test_no_server_speaks_vllm_s_protocol_for_it(started: str, tmp_path: Path) -> None:
    model = write_model(SMALL_MODELS["small-qwen2.5-vl"](), tmp_path / "model")
    options = ("--backend", "sglang", "--engine-args", started, "--uds", str(tmp_path / "socket"))
    with process(str(model), *options, log=tmp_path / "log") as server:
        assert server.wait(60) == 1
    assert "has the routes of vllm, and none of sglang" in (tmp_path / "log").read_text()
