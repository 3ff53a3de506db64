"""``mmroute serve`` as a command: where its options stand."""

from __future__ import annotations

import pytest
from command_line import run

from mmroute.model_directory import EMBEDDED_MODEL


def test_options_stand_anywhere() -> None:
    assert run("serve", EMBEDDED_MODEL, "--check-config", f"b={EMBEDDED_MODEL}").status == 0


def test_variables_of_kubernetes_are_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVICE_HOST", "PORT"):
        monkeypatch.setenv(f"MMROUTE_{name}", "tcp://10.0.0.1:80")
    assert run("serve", EMBEDDED_MODEL, "--check-config").status == 0


def test_a_misspelt_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMROUTE_MODELS", EMBEDDED_MODEL)
    assert "MMROUTE_MODEL " in run("serve", "--check-config").stderr
    for name, meant in (("MAX_BODY_BYTE", "MAX_BODY_BYTES"), ("PROT", "PORT")):
        with monkeypatch.context() as only:
            only.setenv(f"MMROUTE_{name}", "5")
            refused = run("serve", EMBEDDED_MODEL, "--check-config")
        assert refused.status == 2
        assert f"MMROUTE_{name}. Did you mean MMROUTE_{meant}?" in refused.stderr
