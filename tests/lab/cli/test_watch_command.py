"""``mmroute watch`` against a scripted server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import run
from scripted_server import ScriptedServer

pytestmark = pytest.mark.process
PROVED: dict[str, Any] = {
    "worker": "tcp://w", "model": "m", "version": "0.33.0", "state": "proved", "difference": "",
    "requests": {"equal": 20},
}  # fmt: skip
DIFFERS = PROVED | {"state": "differs", "difference": "token 4 of 64 differs"}


def test_states_are_shown_and_an_option_is_looked_for() -> None:
    with ScriptedServer() as server:
        server.routes["/readyz"] = 200, {"predictions": [PROVED]}
        result = run("watch", server.url, "--seconds", "0")
        assert (result.status, result.stdout) == (0, "tcp://w m 0.33.0: proved; 20 equal\n")
        server.routes["/readyz"] = 503, {"predictions": [DIFFERS]}
        result = run("watch", server.url, "--seconds", "1.5", "--json", "--validate", "m")
    assert result.status == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == [DIFFERS]
    assert "--against ORACLE" in result.stderr  # of validate, whose arguments are too few


def test_a_server_without_predictions_is_told_once() -> None:
    with ScriptedServer() as server:
        server.routes["/readyz"] = 200, {"predictions": []}
        result = run("watch", server.url, "--seconds", "1.5")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.count("--events") == 1


def test_a_server_of_another_kind_is_refused() -> None:
    with ScriptedServer() as server:
        for url in (server.url, "nonsense"):
            result = run("watch", url, "--seconds", "0")
            assert result.status == 2
            assert url in result.stderr


def test_arguments_of_validate_that_are_no_words_are_refused_at_once() -> None:
    result = run("watch", "http://localhost:1", "--seconds", "0", "--validate", "'m")
    assert (result.status, result.stderr) == (2, "mmroute: --validate 'm: No closing quotation\n")
