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
from small_models import as_qwen3_5

from mmroute.cli import main
from mmroute.engine import find_engine
from mmroute.engines.running import Evidence, ask_engine
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.reported import ask_options
from mmroute.engines.vllm.serve_command import is_automatic, joined, parse_command
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.profile import VLLM_RUST
from mmroute.lab.parity.cases import Case, UndecidedError
from mmroute.lab.parity.oracles.http import HttpOracle
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport

pytestmark = pytest.mark.process
RECORDED = json.loads((VECTORS / "server" / "running_vllm.json").read_text(encoding="utf-8"))
INFO = "/server_info?config_format=json"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        scripted.routes |= {path: (200, body) for path, body in RECORDED["answers"].items()}
        scripted.routes["/v1/chat/completions"] = (405, {"detail": "Method Not Allowed"})
        yield scripted


def told(server: ScriptedServer) -> VllmSettings:
    return VllmSettings.from_args(ask_options(Transport(Remote(server.url))).line)


# What vLLM 0.33.0's `CacheConfig.metrics_info` gives, without the labels that are not read here.
def cache_metric(size: int, *, mode: str = "none", unit: int | None = None, engine: int = 0) -> str:
    return (
        f'vllm:cache_config_info{{_block_size_resolved="True",block_size="{size}",'
        f'enable_prefix_caching="True",engine="{engine}",kv_cache_dtype_skip_layers="[]",'
        f'mamba_block_size="None",mamba_cache_mode="{mode}",prefix_caching_hash_algo="xxhash_cbor",'
        f'prefix_match_unit="{unit}",user_specified_block_size="False"}} 1.0\n'
    )


def with_metrics(server: ScriptedServer, *lines: str) -> None:
    """The metrics of a server that does not tell its configuration."""
    server.routes.pop(INFO, None)
    head = "# TYPE vllm:cache_config_info gauge\n"
    server.routes["/metrics"] = 200, f'{head}{"".join(lines)}vllm:x{{y="z"}} 1.0\n'.encode()


def test_a_server_that_tells_its_configuration_tells_nearly_all(server: ScriptedServer) -> None:
    started = VllmSettings.from_args(RECORDED["arguments"])
    found = told(server)
    assert found.limits == {"image": 2}
    for name in (
        "model", "served_names", "mm_processor_kwargs", "limits", "max_model_len", "block_size",
        "max_num_batched_tokens", "hash_algorithm", "lora_in_identities", "hashes_refused",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(started, name), name


# Source: vLLM 0.33.0 rust/src/server/src/routes/version.rs, and an answer of its own.
def test_the_rust_frontend_tells_itself(server: ScriptedServer) -> None:
    del server.routes[INFO]
    assert told(server).engine == "vllm"
    server.routes["/version"] = 200, {"version": "0.33.0", "rust_frontend_version": "0.33.0"}
    assert told(server).engine == "vllm-rust"
    running = ask_engine(Transport(Remote(server.url)))
    assert "rust frontend: proved" in str(running)
    assert "VLLM_USE_RUST_FRONTEND=1" in running.warning(VLLM)
    assert running.warning(VLLM_RUST) == ""
    server.routes["/version"] = 200, {"version": "0.31.0", "rust_frontend_version": "0.31.0"}
    assert ask_engine(Transport(Remote(server.url))).evidence is Evidence.UNKNOWN


# Source: SGLang 0.5.23 srt/managers/scheduler_components/internal_state.py (`_add_rust_server`),
# srt/entrypoints/http_server.py (`server_info`).
@pytest.mark.parametrize(
    ("state", "frontend"), [({"rust_server_startup_time": 1.5}, "rust"), ({}, "python")]
)
def test_sglangs_rust_server_tells_itself(
    server: ScriptedServer, state: dict[str, Any], frontend: str
) -> None:
    del server.routes["/version"]
    server.routes["/server_info"] = 200, {"version": "0.5.23", "internal_states": [state]}
    running = ask_engine(Transport(Remote(server.url)))
    assert running.frontend == frontend
    warning = running.warning(find_engine("sglang"))
    assert ("token IDs differ" in warning) is (frontend == "rust")
    assert "VLLM" not in warning


# `vllm-rs render` has no route of its version, and says nothing to a wrong method.
@pytest.mark.parametrize(
    ("reply", "frontend"),
    [((405, b""), "rust"), ((405, {"detail": "Method Not Allowed"}), "python")],
)
def test_the_rust_renderer_tells_itself(server: ScriptedServer, reply: Any, frontend: str) -> None:
    for route in (INFO, "/version", "/server_info"):
        server.routes.pop(route, None)
    server.routes["/v1/chat/completions/render"] = reply
    assert (told(server).engine == "vllm-rust") is (frontend == "rust")


def test_mmroute_tells_the_frontend_that_it_matches(server: ScriptedServer) -> None:
    version = {"version": "0.33.0", "engine": "vllm", "frontend": "rust", "mmroute": "0.1.0"}
    server.routes["/version"] = 200, version
    assert told(server).engine == "vllm-rust"


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
    config["vllm_config"]["model_config"]["hf_overrides"] = {"vocab_size": 5}
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
    assert "neither reported" in result.stderr
    by_hand = f"{RECORDED['arguments']} --block-size 64"
    same = run("blocks", model, "--engine-args", f"PYTHONHASHSEED=7 {by_hand}", stdin=line)
    assert result.stdout == same.stdout
    unreachable = run("blocks", model, "--engine", "http://127.0.0.1:1", stdin=line)
    assert unreachable.status == 1
    assert "remote_unavailable" in unreachable.stderr
    wrong = run("blocks", model, "--engine", "nonsense", stdin=line)
    assert "--engine" in wrong.stderr


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([cache_metric(128)], (128, None, "xxhash_cbor")),
        ([cache_metric(160, mode="align")], (160, 160, "xxhash_cbor")),
        ([cache_metric(160, mode="align", unit=32)], (160, 32, "xxhash_cbor")),
        ([cache_metric(160, mode="none", unit=32)], (160, 32, "xxhash_cbor")),
        ([cache_metric(64), cache_metric(64, engine=1)], (64, None, "xxhash_cbor")),
        ([cache_metric(64), cache_metric(32, engine=1)], (None, None, "xxhash_cbor")),
        ([], (None, None, None)),
    ],
)
def test_the_block_size_and_the_algorithm_are_in_the_metrics(
    server: ScriptedServer, lines: list[str], expected: tuple[object, ...]
) -> None:
    with_metrics(server, *lines)
    found = told(server)
    assert (found.block_size, found.hash_block_size, found.hash_algorithm) == expected


@pytest.mark.parametrize("hybrid", [False, True])
def test_block_hashes_have_the_size_that_the_engine_tells(
    server: ScriptedServer, changed_model: Callable[..., Path], *, hybrid: bool
) -> None:
    model = str(changed_model("small-qwen3-vl", as_qwen3_5 if hybrid else lambda _: None))
    with_metrics(server, cache_metric(48, mode="align" if hybrid else "none"))
    line = json.dumps({"prompt_token_ids": [1, 2, 3] * 40})
    asked = run(
        "blocks", model, "--engine", server.url, "--engine-args", "PYTHONHASHSEED=0", stdin=line
    )
    given = ["--block-size", "48", "--algorithm", "xxhash_cbor", "--hash-seed", "0"]
    by_hand = run("blocks", model, *given, stdin=line)
    assert len(json.loads(asked.stdout)["block_hashes"]) == 2
    assert asked.stdout == by_hand.stdout
    assert "which is only a guess" not in asked.stderr + by_hand.stderr


def test_what_was_neither_told_nor_given_is_named(
    server: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    def named(*options: str) -> set[str]:
        model = str(small_model("small-qwen2.5-vl"))
        result = run("blocks", model, "--engine", server.url, *options)
        (line,) = (s for s in result.stderr.splitlines() if "neither reported" in s)
        return set(line.rpartition(": ")[2].split(", "))

    never = {"PYTHONHASHSEED", "VLLM_USE_RUST_FRONTEND", "--chat-template"}
    of_configuration = {"--hf-overrides", "--mm-processor-kwargs", "--speculative-config"}
    of_metrics = {"--block-size", "--prefix-caching-hash-algo", "--prefix-match-unit"}
    always = {"--served-model-name", "--max-model-len", "--lora-modules"}
    found = named()
    assert never <= found
    assert not found & (of_configuration | of_metrics | always)
    given = "--engine-args", "PYTHONHASHSEED=0 --chat-template {{messages}}"
    assert found - named(*given) == {"PYTHONHASHSEED", "--chat-template"}
    with_metrics(server, cache_metric(32))
    assert named() & (of_configuration | of_metrics | always) == of_configuration
    with_metrics(server)
    assert of_metrics <= named()


def test_a_block_size_that_nobody_told_is_warned_of_once(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = tmp_path / "model"  # of a name that was not warned of
    model.symlink_to(small_model("small-qwen2.5-vl"))
    lines = "".join(json.dumps({"prompt_token_ids": [1, 2] * n}) + "\n" for n in (20, 30, 40))
    for given in (["--block-size", "16"], ["--engine-args", "--block-size 16"]):
        told = run("blocks", str(model), *given, stdin=lines)
        assert "which is only a guess" not in told.stderr
    guessed = run("blocks", str(model), stdin=lines)
    assert guessed.stdout == told.stdout
    assert guessed.stderr.count("blocks of 16 tokens, which is only a guess") == 1
    assert "128" in guessed.stderr


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
    assert VllmSettings.from_args(both).complete is whole


def test_the_rust_renderer_is_an_oracle_of_texts(server: ScriptedServer) -> None:
    for route in (INFO, "/version", "/server_info"):
        server.routes.pop(route, None)
    server.routes["/v1/chat/completions/render"] = 405, b""
    oracle = HttpOracle(server.url, served_model="first")
    server.routes["/v1/chat/completions/render"] = 200, {"token_ids": [1, 2]}
    server.routes["/v1/completions/render"] = 200, [{"token_ids": [3]}]
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    found = [oracle.answer(Case("c", "test", r)).token_ids for r in (chat, {"prompt": "Hi"})]
    assert [None if ids is None else ids.tolist() for ids in found] == [[1, 2], [3]]
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    with pytest.raises(UndecidedError, match="takes no media"):
        oracle.answer(Case("c", "test", {"messages": [image]}))


@pytest.mark.parametrize("own", ["--max-model-len auto", "--max_model_len=-1"])
def test_a_context_that_the_engine_chose_is_the_one_that_it_tells(own: str) -> None:
    line = f"vllm serve m {own}"
    assert parse_command(joined("--max-model-len 4096", line)).options["max-model-len"] == "4096"
    assert is_automatic(parse_command(joined("--block-size 16", line)).options["max-model-len"])
    given = joined("--max-model-len 4096", "vllm serve m --max-model-len 2048")
    assert parse_command(given).options["max-model-len"] == "2048"
