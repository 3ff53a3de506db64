"""Every command that asks a running engine answers by the rules of the version that runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from scripted_server import ScriptedServer

from mmroute import cli
from mmroute.engine import Engine, find_engine
from mmroute.errors import ModelError, Reason
from mmroute.model import resolve
from mmroute.server.loading import ModelSource

pytestmark = pytest.mark.process
QWEN = "small-qwen2.5-vl"
OLDER, UNKNOWN = "0.30.0", ("0.12.0", "")


def commands(
    parser: argparse.ArgumentParser, *words: str
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in nested:
        for name, command in action.choices.items():
            yield from commands(command, *words, name)
    if not nested:
        yield words, parser


ASKING = {
    words: parser
    for words, parser in commands(cli._parser())
    if "--engine" in parser._option_string_actions
}
# What a command wants beside its positional arguments.
WANTED: dict[tuple[str, ...], Callable[[str, str], list[str]]] = {
    ("bench",): lambda _, requests: ["--input", requests],
    ("trace",): lambda model, _: ["--model", model],
    ("validate",): lambda _, requests: ["--against", requests],
}


@pytest.fixture
def engine() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends by which commands resolve their models, each of which ends there."""
    found: list[str] = []

    def spy(name: str, _settings: object, _accepted: object) -> Engine:
        found.append(name)
        raise ModelError(Reason.SELF_CHECK_FAILED, "far enough")

    def serve(sources: Sequence[ModelSource], *_: Any) -> str:
        found.extend(source.backend for source in sources)
        return "far enough"

    monkeypatch.setattr(resolve, "engine_under", spy)
    monkeypatch.setattr("mmroute.server.run.serve", serve)
    return found


@pytest.fixture
def words(
    request: pytest.FixtureRequest, small_model: Callable[[str], Path], tmp_path: Path
) -> list[str]:
    """A command with all that it needs."""
    model, requests = str(small_model(QWEN)), tmp_path / "requests.jsonl"
    requests.write_text('{"id": "a", "prompt": "a"}\n')
    positional = [a.dest for a in ASKING[request.param]._actions if not a.option_strings]
    given = [model if "model" in dest else str(requests) for dest in positional]
    wanted = WANTED[request.param](model, str(requests)) if request.param in WANTED else []
    return [*request.param, *given, *wanted]


every_command = pytest.mark.parametrize(
    "words", [pytest.param(words, id=" ".join(words)) for words in ASKING], indirect=True
)


def test_the_commands_that_ask_are_found() -> None:
    assert {("blocks",), ("serve",), ("tokens",)} <= ASKING.keys()


@every_command
@pytest.mark.parametrize("version", ["0.33.0", "0.32.0", OLDER, "0.28.0+cu130"])
def test_the_version_that_runs_is_matched(
    engine: ScriptedServer, matched: list[str], words: list[str], version: str
) -> None:
    engine.routes["/version"] = 200, {"version": version}
    run(*words, "--engine", engine.url)
    assert set(matched) == {f"vllm=={version.partition('+')[0]}"}


@every_command
@pytest.mark.parametrize("version", UNKNOWN)
def test_an_unknown_version_is_refused(
    engine: ScriptedServer, matched: list[str], words: list[str], version: str
) -> None:
    engine.routes["/version"] = 200, {"version": version}
    result = run(*words, "--engine", engine.url)
    assert result.status == (3 if words[0] == "validate" else 1)  # 1: answers that differ
    assert "unknown_backend: vllm" in result.stderr
    assert (version or "of no stated version") in result.stderr
    assert matched == []


@every_command
@pytest.mark.parametrize("version", ["0.33.99", "0.34.0+cu130", "0.34.1.dev7+g0a1b2c3"])
def test_a_later_version_is_matched_by_its_own_name(
    engine: ScriptedServer, matched: list[str], words: list[str], version: str
) -> None:
    engine.routes["/version"] = 200, {"version": version}
    result = run(*words, "--engine", engine.url)
    assert f"warning: vllm {version}: unknown" in result.stderr
    assert set(matched) == {f"vllm=={version.partition('+')[0]}"}


def test_a_later_version_is_inexact_until_it_is_accepted(
    engine: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    engine.routes["/version"] = 200, {"version": "0.34.0"}
    asked = "tokens", str(small_model(QWEN)), "--engine", engine.url
    answers = {}
    for accepted in ("0.34.1", "0.34.0"):
        result = run(*asked, "--accept-version", accepted, stdin='{"prompt": "a"}')
        answers[accepted] = json.loads(result.stdout)
    assert answers["0.34.1"]["reason"] == Reason.UNPROVED_VERSION
    assert "--accept-version 0.34.0" in answers["0.34.1"]["message"]
    known = run("tokens", str(small_model(QWEN)), stdin='{"prompt": "a"}')
    assert answers["0.34.0"] == json.loads(known.stdout)


@every_command
def test_an_unknown_version_is_answered_by_another_one_that_is_named(
    engine: ScriptedServer, matched: list[str], words: list[str]
) -> None:
    engine.routes["/version"] = 200, {"version": "0.34.0"}
    result = run(*words, "--engine", engine.url, "--backend", "vllm==0.33.0")
    assert "warning: vllm 0.34.0: unknown" in result.stderr
    assert set(matched) == {"vllm==0.33.0"}


@every_command
@pytest.mark.parametrize("backend", ["vllm==0.12", "vllm==34", "sglang==0.5.19"])
def test_a_version_that_is_named_must_be_known(words: list[str], backend: str) -> None:
    with pytest.raises(ModelError) as refused:
        find_engine(backend)
    result = run(*words, "--backend", backend, *(["--port", "0"] if words[0] == "serve" else []))
    assert result.status == (1 if words[0] == "doctor" else 2)  # 1: it is not healthy
    assert str(refused.value) in result.stderr + result.stdout


def test_block_hashes_are_those_of_the_version(
    engine: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    """Two requests that differ in their salt, whose form is another one since 0.31."""
    line = json.dumps({"prompt_token_ids": list(range(1, 40)), "cache_salt": "a"})
    asked = "blocks", str(small_model(QWEN)), "--block-size", "16"
    for version in (OLDER, "0.33.0"):
        engine.routes["/version"] = 200, {"version": version}
        found = run(*asked, "--engine", engine.url, stdin=line)
        named = run(*asked, "--backend", f"vllm=={version}", stdin=line)
        assert json.loads(found.stdout)["block_hashes"] == json.loads(named.stdout)["block_hashes"]
        if version == OLDER:
            older = found.stdout
    assert found.stdout != older


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_an_engine_of_another_kind_is_matched_as_such(
    version: str, engine: ScriptedServer, matched: list[str], small_model: Callable[[str], Path]
) -> None:
    del engine.routes["/version"]
    engine.routes["/server_info"] = 200, {"version": version}
    run("tokens", str(small_model(QWEN)), "--engine", engine.url)
    assert matched == [f"sglang=={version}"]


def test_a_running_sglang_tells_its_options(
    engine: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    del engine.routes["/version"]
    resolved = {
        "page_size": 8, "attention_backend": "triton", "decode_attention_backend": None,
        "disable_radix_cache": False, "revision": None, "lora_paths": [], "dcp_size": 2,
        "tp_size": 4, "limit_mm_data_per_request": {"image": 1}, "version": "0.5.23",
    }  # fmt: skip
    engine.routes["/server_info"] = 200, resolved
    line = json.dumps({"prompt_token_ids": list(range(1, 40))})
    asked = "blocks", str(small_model(QWEN)), "--hashes", "int"
    found = run(*asked, "--engine", engine.url, "--engine-args", "--dcp-size 1", stdin=line)
    named = run(*asked, "--backend", "sglang", "--block-size", "8", stdin=line)
    assert json.loads(found.stdout)["block_hashes"] == json.loads(named.stdout)["block_hashes"]
    assert "--limit-mm-data-per-request '{\"image\": 1}' --page-size 8" in found.stderr
    assert "SGLANG_MM_SKIP_COMPUTE_HASH" in found.stderr  # which no server reports


@pytest.mark.parametrize("backend", [(), ("--backend", "sglang")], ids=["adopted", "named"])
def test_sglangs_rust_server_is_refused_by_name(
    engine: ScriptedServer, small_model: Callable[[str], Path], backend: tuple[str, ...]
) -> None:
    del engine.routes["/version"]
    states = [{"rust_server_startup_time": 1.5}]
    engine.routes["/server_info"] = 200, {"version": "0.5.23", "internal_states": states}
    model = str(small_model(QWEN))
    result = run("tokens", model, "--engine", engine.url, *backend, stdin='{"prompt": "a"}')
    assert (result.status, result.stdout) == (1, "")
    assert "unsupported_engine_setting: SGLANG_RUST_SERVER" in result.stderr


def test_the_version_that_is_proposed_is_of_the_engine_that_runs(
    engine: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    del engine.routes["/version"]
    engine.routes["/server_info"] = 200, {"version": "0.4.9"}
    result = run("tokens", str(small_model(QWEN)), "--engine", engine.url, stdin='{"prompt": "a"}')
    assert "--backend sglang==0.5.23" in result.stderr
