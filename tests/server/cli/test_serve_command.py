"""``mmroute serve`` as a command: where its options stand, and variables that look like them."""

from __future__ import annotations

import pytest
from command_line import run

from mmroute.model_directory import EMBEDDED_MODEL


def test_options_stand_anywhere() -> None:
    assert run("serve", EMBEDDED_MODEL, "--check-config", f"b={EMBEDDED_MODEL}").status == 0


def test_serve_names_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMROUTE_MAX_BODY_BYTE", "5")
    monkeypatch.setenv("MMROUTE_SERVICE_HOST", "10.0.0.1")  # by Kubernetes
    warned = run("serve", EMBEDDED_MODEL, "--check-config").stderr
    assert "no variable MMROUTE_MAX_BODY_BYTE. Did you mean MMROUTE_MAX_BODY_BYTES?" in warned
    assert "SERVICE_HOST" not in warned
