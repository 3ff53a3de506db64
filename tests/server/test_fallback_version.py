"""A fallback of another version than the one that is matched."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_server import ScriptedServer
from server_helpers import metric, process, serving
from waiting import until

from mmroute.lab.engines.process import free_port
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server.loading import ModelSource
from mmroute.server.settings import InexactPolicy, ServerSettings

pytestmark = pytest.mark.process

SOURCES = [ModelSource(EMBEDDED_MODEL, ("m",))]


@pytest.fixture
def fallback() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def settings(fallback: ScriptedServer, *, strict: bool = False) -> ServerSettings:
    return ServerSettings(inexact=InexactPolicy.FALLBACK, fallback_url=fallback.url, strict=strict)


@pytest.mark.parametrize(
    ("said", "evidence", "matches"),
    [("0.33.0", "proved", 1), ("0.12.0", "unknown", 0), ("0.28.0", "proved", 0),
     ("0.34.0", "unknown", 0)],
)  # fmt: skip
def test_its_version_is_logged_and_counted(
    fallback: ScriptedServer,
    caplog: pytest.LogCaptureFixture,
    said: str,
    evidence: str,
    matches: int,
) -> None:
    fallback.routes["/version"] = 200, {"version": said}
    labels = f'engine="vllm",evidence="{evidence}",version="{said}"'
    sample = f"mmroute_fallback_matches{{{labels}}}"
    with caplog.at_level(logging.WARNING), serving(SOURCES, settings(fallback)) as client:
        until(lambda: sample in client.get("/metrics").text)
        assert metric(client, sample) == matches
    warned = [r for r in caplog.records if r.name == "mmroute.server.fallback"]
    assert len(warned) == 1 - matches


def test_strict_ends_the_server(fallback: ScriptedServer) -> None:
    fallback.routes["/version"] = 200, {"version": "0.34.0"}
    failures: list[str] = []
    with serving(SOURCES, settings(fallback, strict=True), on_failure=failures.append):
        until(lambda: failures)
    assert "0.34.0: unknown" in failures[0]


def test_strict_ends_the_process_with_1(fallback: ScriptedServer, tmp_path: Path) -> None:
    fallback.routes["/version"] = 200, {"version": "0.12.0"}
    log = tmp_path / "log"
    options = (EMBEDDED_MODEL, "--port", str(free_port()), "--fallback-url", fallback.url)
    with process(*options, "--strict", log=log) as server:
        assert server.wait(60) == 1
    assert "0.12.0: unknown" in log.read_text()
