"""A running vLLM tells how it was started: recorded answers, and what is taken from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from paths import VECTORS
from scripted_server import ScriptedServer

from mmroute import EngineSettings
from mmroute.cli import main
from mmroute.engines.vllm.serve_command import joined
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.remote.server_info import ask_options

pytestmark = pytest.mark.process
RECORDED = json.loads((VECTORS / "server" / "running_vllm.json").read_text(encoding="utf-8"))
INFO = "/server_info?config_format=json"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        scripted.routes |= {path: (200, body) for path, body in RECORDED["answers"].items()}
        scripted.routes["/v1/chat/completions"] = (405, {"detail": "Method Not Allowed"})
        yield scripted


def told(server: ScriptedServer) -> EngineSettings:
    return EngineSettings.from_args(ask_options(Transport(Remote(server.url))))


def test_a_server_that_tells_its_configuration_tells_nearly_all(server: ScriptedServer) -> None:
    started = EngineSettings.from_args(RECORDED["arguments"])
    found = told(server)
    assert found.limits == {"image": 2}
    for name in (
        "model", "served_names", "mm_processor_kwargs", "limits", "max_model_len", "block_size",
        "max_num_batched_tokens", "hash_algorithm", "lora_in_identities", "hashes_refused",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(started, name), name


def test_any_server_tells_its_model_string_and_adapters(server: ScriptedServer) -> None:
    del server.routes[INFO]
    cards = server.routes["/v1/models"][1]["data"]
    cards.append({"id": "sql", "parent": "first", "root": "/adapters/sql"})
    found = told(server)
    assert (found.model, found.served_names) == ("small-qwen2.5-vl", ("first", "second"))
    assert (found.max_model_len, found.loras) == (4096, {"sql": "/adapters/sql"})
    assert found.block_size is None


def test_a_render_server_has_no_cache_of_its_own(server: ScriptedServer) -> None:
    del server.routes["/v1/chat/completions"]
    found = told(server)
    assert (found.block_size, found.hash_algorithm, found.max_num_batched_tokens) == (None,) * 3
    assert found.limits == {"image": 2}


def test_what_is_not_covered_is_refused_by_name(
    server: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    config: dict[str, Any] = json.loads(json.dumps(RECORDED["answers"][INFO]))
    config["vllm_config"]["model_config"]["hf_overrides"] = {"image_token_id": 5}
    server.routes[INFO] = (200, config)
    model = str(small_model("small-qwen2.5-vl"))
    result = run("blocks", model, "--engine", server.url, stdin="")
    assert result.status == 1
    assert "--hf-overrides" in result.stderr


def test_the_command_says_what_it_took(
    server: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    model = str(small_model("small-qwen2.5-vl"))
    given = ["--engine", server.url, "--engine-args", "PYTHONHASHSEED=7 vllm serve --block-size 64"]
    line = json.dumps({"prompt_token_ids": list(range(1, 200))})
    result = run("blocks", model, *given, stdin=line)
    assert "is vllm 0.33.0" in result.stderr
    assert "--mm-processor-kwargs" in result.stderr
    assert "not told" in result.stderr
    by_hand = f"{RECORDED['arguments']} --block-size 64"
    same = run("blocks", model, "--engine-args", f"PYTHONHASHSEED=7 {by_hand}", stdin=line)
    assert result.stdout == same.stdout
    unreachable = run("blocks", model, "--engine", "http://127.0.0.1:1", stdin=line)
    assert unreachable.status == 1
    assert "remote_unavailable" in unreachable.stderr
    wrong = run("blocks", model, "--engine", "nonsense", stdin=line)
    assert "--engine" in wrong.stderr


def test_a_server_asks_the_engine_of_each_model(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("mmroute.server.run.serve", lambda *given: served.append(given))
    own = ["--engine-args", "a=--block-size 64"]
    assert main(["serve", "a=one", "b=two", "--engine", f"a={server.url}", *own]) == 0
    asked, other = (source.engine_settings for source in served[0][0])
    assert (asked.limits, asked.block_size) == ({"image": 2}, 64)
    assert (other.limits, other.block_size) == ({}, None)
    assert "is vllm 0.33.0" in capsys.readouterr().err
    assert main(["serve", "one", "--engine", "http://127.0.0.1:1"]) == 1
    assert "remote_unavailable" in capsys.readouterr().err
    assert main(["serve", "a=one", "b=two", "--engine", server.url]) == 2
    assert main(["serve", "one", "--engine", "http://127.0.0.1:1", "--check-config"]) == 0


def test_the_second_of_two_command_lines_wins() -> None:
    first = "A=1 vllm serve --model one --served-model-name a b"
    assert joined(first, "") == "A=1 --model one --served-model-name a b"
    both = joined(first, "B=2 A=3 vllm serve two --block-size 8")
    assert both == "A=3 B=2 vllm serve two --served-model-name a b --block-size 8"


@pytest.mark.parametrize(
    ("own", "whole"), [("", False), ("A=1 vllm serve", False), ("vllm serve two", True)]
)
def test_what_a_server_tells_is_no_whole_command_line(own: str, whole: bool) -> None:
    both = joined("--model one --served-model-name a", own)
    assert EngineSettings.from_args(both).whole is whole
