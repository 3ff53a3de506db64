"""Makes the Python environments in which engines for CPUs run, once each."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mmroute.lab.parity.oracles.common import OracleError

REMEDY: Final = (
    "Give pip an index with PyTorch's builds for CPUs (PIP_EXTRA_INDEX_URL), or an environment "
    "that has the engine (--python PATH)."
)
"""What to do where pip does not find an engine."""

_READY: Final = "ready"  # the file that marks an environment as complete
_LAST_LINES: Final = 3
_SHOWN: Final = 200


def cache_directory() -> Path:
    """The directory for what is kept between runs: environments and the engine's own cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mmroute" / "engines"


def made_once(name: str, install: Callable[[Path, Path], None], say: Callable[[str], None]) -> Path:
    """The Python of an environment, which `install` fills by its directory and its Python."""
    root = cache_directory() / name
    python = root / "bin" / "python"
    if (root / _READY).is_file():
        return python
    say(f"makes an environment for {name}, once: {root}")
    shutil.rmtree(root, ignore_errors=True)
    try:
        venv.create(root, with_pip=True, symlinks=True)
        install(root, python)
    except BaseException:  # of an interrupt, too: half an environment is of no use
        shutil.rmtree(root, ignore_errors=True)
        raise
    (root / _READY).touch()
    return python


def asked(python: Path, program: str, engine: str) -> str:
    """What a short program prints under the user's own Python, which has the engine."""
    try:
        found = subprocess.run(  # noqa: S603 - the user's own program
            [python, "-c", program], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise OracleError(f"--python {python}: {error.strerror}") from error
    if found.returncode:
        raise OracleError(f"--python {python} has no {engine}: {found.stderr.strip()[-_SHOWN:]}")
    return found.stdout.strip()


def do_without_cuda(root: Path, python: Path, package: str) -> None:
    """Leave a package as it is if it can be imported, else its Python part, else nothing of it."""
    with contextlib.suppress(OracleError):
        run(python, "-c", f"import {package}")
        return
    for compiled in root.glob(f"lib/*/site-packages/{package}/**/*.so"):
        compiled.unlink()
    try:
        run(python, "-c", f"import {package}")
    except OracleError:
        pip(python, "uninstall", "--yes", package)


def pip(python: Path, *arguments: str) -> str:
    """Run pip."""
    return run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(python: Path, *arguments: str) -> str:
    """Run a program of an environment; its errors are raised."""
    done = subprocess.run(  # noqa: S603 - of an environment made here
        [python, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = errors or done.stderr.strip().splitlines()
        raise OracleError(" ".join(last[-_LAST_LINES:]) or f"{arguments[:3]} failed without a word")
    return done.stdout
