"""Starts an engine's process, waits until it answers, and ends it in any case."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mmroute.errors import InexactError
from mmroute.lab.parity.oracles.common import OracleError
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "OMP_NUM_THREADS": "1",  # a process with more threads cannot be forked
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
# Settings of mmroute's own process that would be the engine's.
_NOT_INHERITED: Final = ("PYTHONHASHSEED", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_PATIENCE: Final = 12.0  # seconds for an engine to end by itself
_POLL: Final = 0.25
_ERROR: Final = re.compile(r"(?:\w+Error|error|Exception)[:,] ?.+|\b[A-Z]\w+Error$", re.MULTILINE)
_PREFIX: Final = re.compile(r"^\(\w+ pid=\d+\) [A-Z]+ .*?\]")
_ELSEWHERE: Final = re.compile(r"root cause|stack trace")  # it points at another error
_SHOWN: Final = 300
_SHOWN_LINES: Final = 3


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Engine:
    """A running engine; leave the ``with`` statement to end it."""

    def __init__(
        self,
        python: Path,
        launcher: Path,
        arguments: list[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        port: int,
        quickly: bool,
    ) -> None:
        self.url: Final = f"http://127.0.0.1:{port}"
        self.log: Final = directory / "engine.log"
        inherited = {n: v for n, v in os.environ.items() if n not in _NOT_INHERITED}
        # Programs of the environment may be called by name, such as ninja.
        inherited["PATH"] = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
        how = "quickly" if quickly else "plainly"
        self._began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the user asks for it
                [python, _LAUNCHER, launcher, how, *arguments],
                stdin=subprocess.PIPE,  # the launcher ends the engine when this closes
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**inherited, **_ENVIRONMENT, **environment},
                start_new_session=True,
            )

    def wait(self, seconds: float, waiting: Callable[[float], None]) -> float:
        """Wait until the engine answers; returns how long it took."""
        transport = Transport(Remote(self.url, timeout=2.0, connect_timeout=2.0))
        with contextlib.closing(transport):
            while True:
                passed = time.monotonic() - self._began
                if self._process.poll() is not None:
                    raise OracleError(f"the engine did not start. {self.log_end()}")
                if passed > seconds:
                    late = f"the engine did not start within {seconds:g} s (--wait)."
                    raise OracleError(f"{late} {self.log_end()}")
                with contextlib.suppress(InexactError):
                    if transport.request("GET", "/health").status == HTTPStatus.OK:
                        return passed
                waiting(passed)
                time.sleep(_POLL)

    @property
    def ended(self) -> bool:
        """Whether the engine has ended."""
        return self._process.poll() is not None

    def log_end(self) -> str:
        """The errors at the end of its log."""
        logged = self.log.read_text(errors="replace").strip().splitlines()
        lines = [_PREFIX.sub("", line).strip() for line in logged if " WARNING " not in line]
        errors = (_ERROR.search(line) for line in lines if not _ELSEWHERE.search(line))
        found = list(dict.fromkeys(error[0][:_SHOWN] for error in errors if error))
        end = " | ".join(found[-_SHOWN_LINES:] or lines[-_SHOWN_LINES:]) or "nothing"
        return f"The end of its log: {end}. --log FILE keeps all of it."

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, _PATIENCE)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                break
        with contextlib.suppress(ProcessLookupError):  # what is left of its children
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
