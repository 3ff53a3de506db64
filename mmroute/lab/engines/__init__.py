"""How an engine is started and shrunk, to be compared with mmroute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from mmroute.plugins import Registry


class Prover(Protocol):
    """A module that starts an engine on a shrunken copy of a model."""

    NEWEST: str
    """The version that is run where none is given."""

    def parse_command(self, arguments: str, *, config: Any = None) -> Any:
        """The engine's command line, read."""

    def engine_environment(self, version: str, say: Callable[[str], None]) -> Path:
        """The Python of an environment with the engine, which is made if there is none."""

    def installed_version(self, python: Path) -> str:
        """The version of the engine that a Python has."""

    def start_engine(
        self,
        model: str,
        given: Any,
        python: Path,
        directory: Path,
        *,
        revision: str | None = None,
        quickly: bool = True,
        say: Callable[[str], None],
    ) -> Any:
        """Start it."""


PROVERS: Final = Registry("prover", "mmroute.lab.engines", {"vllm": "vllm"}, "mmroute.lab.prove")
"""The engines that can be started: name of the engine -> a `Prover`."""
