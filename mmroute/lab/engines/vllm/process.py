"""Starts an engine's process, waits until it answers, and ends it in any case."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
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
    "VLLM_CPU_KVCACHE_SPACE": "1",  # gigabytes
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # a process with more threads cannot be forked
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
# Settings of mmroute's own process that would be the engine's.
_NOT_INHERITED: Final = ("PYTHONHASHSEED", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_PATIENCE: Final = 12.0  # seconds for an engine to end by itself
_POLL: Final = 0.25
_ERROR: Final = re.compile(r"(?:\w+Error|error|Exception)[:,] ?.+|\b[A-Z]\w+Error$", re.MULTILINE)
_BARE: Final = re.compile(r"\w+")  # an error without a word; the line above is the code's
_PREFIX: Final = re.compile(r"^\(\w+ pid=\d+\) [A-Z]+ .*?\]")
_UNDERLINED: Final = re.compile(r"[\^~]+")
_ELSEWHERE: Final = re.compile(r"root cause|stack trace")
_SHOWN: Final = 300
_SHOWN_LINES: Final = 3
_REMEDIES: Final = (
    ("No module named", "The engine's environment lacks a package: install it with its pip."),
    ("trust_remote_code", "The model brings its own code: give --trust-remote-code as well."),
    ("kv cache memory", "The context is too long for this machine: give a --max-model-len."),
    ("Available memory", "Another program has the memory that the engine needs."),
    ("max_model_len", "Give a --max-model-len that the model has."),
    ("No space left", "There is no room on the disk."),
    ("out of memory", "There is not enough memory."),
)  # fmt: skip


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Engine:
    """A running ``vllm serve``; leave the ``with`` statement to end it."""

    def __init__(
        self,
        python: Path,
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
        how = "quickly" if quickly else "plainly"
        self._began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the user asks for it
                [python, _LAUNCHER, how, "serve", *arguments],
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
        """The errors at the end of its log, and what can be done about them."""
        logged = self.log.read_text(errors="replace").strip().splitlines()
        lines = [_PREFIX.sub("", line).strip() for line in logged if " WARNING " not in line]
        found = list(dict.fromkeys(_errors(lines)))
        shown = found[-_SHOWN_LINES:] or lines[-_SHOWN_LINES:]
        remedies = [remedy for mark, remedy in _REMEDIES if any(mark in line for line in shown)]
        end = " | ".join(shown) or "nothing"
        return " ".join([f"The end of its log: {end}.", *remedies, "--log FILE keeps all of it."])

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


def _errors(lines: list[str]) -> Iterator[str]:
    """The errors in a log, without those that only point at another one."""
    code = (line for line in lines if not _UNDERLINED.fullmatch(line))
    for above, line in itertools.pairwise(["", *code]):
        error = _ERROR.search(line)
        if error and not _ELSEWHERE.search(line):
            where = f" at {above}" if _BARE.fullmatch(error[0]) else ""
            yield f"{error[0]}{where}"[:_SHOWN].strip()
