"""The engine's command line, its launcher and its process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mmroute.engines.vllm.serve_command import parse_command
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.lab.engines import launcher
from mmroute.lab.engines.process import Engine
from mmroute.lab.engines.vllm.environment import installed_version
from mmroute.lab.engines.vllm.start import engine_command, machine_options
from mmroute.lab.parity.oracles.common import OracleError
from mmroute.model_directory import find_model

LINE = (
    "PYTHONHASHSEED=0 vllm serve org/model -tp 2 --gpu-memory-utilization 0.9 --block-size 64 "
    "--max-model-len 8k --limit-mm-per-prompt '{\"image\": 4}' --no-enable-prefix-caching "
    "--enable-scale-out"
)


def test_names_of_the_served_model_are_put_aside() -> None:
    """No answer depends on them, and of several names no request could choose one."""
    line = parse_command("vllm serve org/model --served-model-name a b")
    found = engine_command(line, "org/model", Path("/copy"))
    assert found.put_aside == ("--served-model-name", "a", "b")
    assert "served-model-name" not in found.options


def test_what_decides_answers_is_kept_and_the_machine_is_put_aside() -> None:
    found = engine_command(parse_command(LINE), "org/model", Path("/copy"))
    assert found.put_aside == ("--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.9")
    assert found.program[-1] == "org/model"
    assert found.options["enable-scale-out"] is True  # without it the render routes are refused
    settings = VllmSettings.from_args(found.line)
    assert (settings.block_size, settings.hash_seed, settings.max_model_len) == (64, "0", 8000)
    assert settings.limits == {"image": 4}
    assert not settings.prefix_caching


@pytest.mark.parametrize(
    ("given", "size"), [("", 32), ("--block-size 16", 32), ("--block-size 96", 96)]
)
def test_a_block_size_is_one_that_a_cpu_takes(given: str, size: int) -> None:
    found = engine_command(parse_command(given), "m", Path("/copy"))
    assert found.options["block-size"] == str(size)
    assert bool(found.changed) is (given == "--block-size 16")


@pytest.mark.parametrize("model", ["/models/qwen", "../qwen", "~/qwen"])
def test_a_model_string_that_is_no_path_below_is_replaced_and_said(model: str) -> None:
    found = engine_command(parse_command(f"vllm serve {model}"), model, Path("/copy"))
    assert found.program[-1] == "/copy"
    assert model in found.changed[0]


def test_a_template_is_found_from_the_engines_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.jinja").write_text("{{ messages }}", encoding="utf-8")
    found = engine_command(parse_command("--chat-template own.jinja"), "m", Path("/copy"))
    assert found.options["chat-template"] == str(tmp_path / "own.jinja")


@pytest.mark.parametrize(("config", "dtype"), [
    ('{"layer_types": ["linear_attention"]}', "bfloat16"), ("{}", "float32"),
])  # fmt: skip
def test_the_type_of_numbers_follows_the_layers(tmp_path: Path, config: str, dtype: str) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    options = machine_options(1, "ipc:///e", find_model(str(tmp_path)))
    assert options["dtype"] == dtype
    assert "config-format" not in options


def test_a_model_of_mistrals_format_is_read_as_such(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text("{}", encoding="utf-8")
    options = machine_options(1, "ipc:///e", find_model(str(tmp_path)))
    assert options["tokenizer-mode"] == options["config-format"] == "mistral"


VLLM = """
import sys, time
def main():
    print(*sys.argv, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def _vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package in the place of vLLM, which only waits."""
    package = tmp_path / "lib" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(VLLM, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))


@pytest.mark.process
@pytest.mark.usefixtures("_vllm")
def test_the_engine_ends_with_the_program_that_started_it() -> None:
    own = str(Path(launcher.__file__).parent / "vllm" / "launcher.py")
    with subprocess.Popen(
        [sys.executable, launcher.__file__, own, "plainly", "serve", "m", "--port", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().split() == [b"vllm", b"serve", b"m", b"--port", b"1"]
        process.stdin.close()
        assert process.wait(60) < 0


@pytest.mark.process
def test_an_engine_that_is_not_ready_in_time_is_named_and_ended(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    python.chmod(0o755)
    engine = Engine(
        python, Path("own.py"), [], environment={}, directory=tmp_path, port=1, quickly=False
    )
    waited: list[float] = []
    with engine, pytest.raises(OracleError, match=r"within 1 s"):
        engine.wait(1.0, waited.append)
    assert waited
    assert engine.ended


@pytest.mark.process
def test_what_a_program_without_vllm_says_is_told(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match="No such file"):
        installed_version(tmp_path / "none")
    with pytest.raises(OracleError, match="has no vLLM"):
        installed_version(Path(sys.executable))
