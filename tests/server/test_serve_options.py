"""The options of ``mmroute serve``: wrong ones, and those of the environment and of a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmroute.cli import main


@pytest.fixture
def directory(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be served: the arguments of each call of `serve`."""
    found: list[Any] = []
    monkeypatch.setattr("mmroute.server.run.serve", lambda *given: found.append(given))
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "b", "--served-model-name", "x"], "--served-model-name"),
        (["=a"], "NAME=MODEL"),
        (["x=a", "y=b", "--model-id", "z=i"], "found z=i"),
        (["x=a", "y=b", "--model-id", "i"], "NAME=…"),
        (["x=a", "x=b"], "'x'"),
        (["a", "--image-network", "10.0.0.0/8"], "--image-host"),
        (["a", "--image-host", "http://x"], "hosts"),
        (["a", "--inexact", "fallback"], "fallback"),
        (["a", "--fallback-url", "x"], "fallback URL"),
        (["a", "--max-concurrency", "0"], "max_concurrency"),
        (["a", "--uds", "s", "--reuse-port"], "Unix socket"),
        (["a", "--port", "99999"], "must be from 0 to 65535, found '99999'"),
        (["a", "--text-cache-mib", "-1"], "text_cache_bytes must be a number of bytes or 0"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_keys_come_from_the_environment_as_well(
    directory: str, served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMROUTE_API_KEY", "one")
    monkeypatch.setenv("MMROUTE_FALLBACK_API_KEY", "two")
    monkeypatch.setenv("MMROUTE_PORT", "8001")
    monkeypatch.setenv("MMROUTE_EVENTS", "tcp://engine:5557")
    assert main(["serve", f"a,b={directory}", "--fallback-url", "http://x", "--encoder",
                 "tokenizers"]) == 0  # fmt: skip
    ((sources, settings, listen, fast_paths),) = served
    assert (sources[0].names, sources[0].model) == (("a", "b"), directory)
    assert sources[0].events == "tcp://engine:5557"
    assert (settings.api_keys, settings.fallback_api_key) == (("one",), "two")
    assert (listen.host, listen.port, listen.uds) == ("127.0.0.1", 8001, None)
    assert fast_paths.encoder == "tokenizers"


def test_options_in_a_file(
    directory: str,
    served: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MMROUTE_WORKERS", "3")
    monkeypatch.setenv("MMROUTE_STRICT", "yes")
    file = tmp_path / "serve.yaml"
    file.write_text(
        f"models: ['a={directory}']\nworkers: 2\nport: 9000\nmax-body-bytes: 1000\n"
        "api-key: [one, two]\nenable-request-id-headers: true\n",
        encoding="utf-8",
    )
    assert main(["serve", "--config", str(file), "--port", "9001"]) == 0
    ((sources, settings, listen, _),) = served
    assert sources[0].names == ("a",)
    assert (settings.workers, settings.max_body_bytes, listen.port) == (3, 1000, 9001)
    assert settings.api_keys == ("one", "two")
    assert settings.strict
    assert settings.request_id_headers
    assert main(["serve", "--config", str(file), "--check-config"]) == 0
    assert len(served) == 1
    file.write_text("ports: 1\n", encoding="utf-8")
    assert main(["serve", "a", "--config", str(file)]) == 2
    assert "ports" in capsys.readouterr().err
    assert main(["serve", "x=a", "x=b", "--check-config"]) == 2


@pytest.mark.process
@pytest.mark.parametrize(("module", "extra"), [("httptools", "serve"), ("zmq", "events")])
def test_without_the_extra(module: str, extra: str, directory: str) -> None:
    code = (
        "import sys, importlib.util as u; f = u.find_spec\n"
        f"u.find_spec = lambda n, *a: None if n == {module!r} else f(n, *a)\n"
        "from mmroute.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"
    )
    arguments = [directory, "--events", "tcp://127.0.0.1:1"]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"{module} not installed: pip install '.[{extra}]'" in result.stderr
