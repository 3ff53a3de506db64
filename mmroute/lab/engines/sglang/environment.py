"""The Python environment in which SGLang runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mmroute.lab.engines.environment import REMEDY, asked, made_once, pip, run
from mmroute.lab.parity.oracles.common import OracleError

NEWEST: Final = "0.5.23"
"""The version to run where none is given."""

# All that a CPU needs of what SGLang asks for, and no library of a GPU.
_REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_ENGINE_VERSION: Final = "import importlib.metadata as m; print(m.version('sglang'))"
_CHECK: Final = "import torch; raise SystemExit(torch.version.cuda and 'ERROR: PyTorch for CUDA')"


def engine_environment(version: str, say: Callable[[str], None]) -> Path:
    """See `mmroute.lab.engines.Prover`."""

    def install(_root: Path, python: Path) -> None:
        say(f"installs sglang {version}, and what it needs on a CPU: 170 packages, 2 GB")
        try:
            # Without what packages ask for themselves: the list is complete.
            packages = ("-r", str(_REQUIREMENTS), f"sglang=={version}")
            pip(python, "install", "--no-deps", *packages)
            run(python, "-c", _CHECK)
        except OracleError as error:
            raise OracleError(f"{error} {REMEDY}") from error

    return made_once(f"sglang-{version}", install, say)


def installed_version(python: Path) -> str:
    """See `mmroute.lab.engines.Prover`."""
    return asked(python, _ENGINE_VERSION, "SGLang")
