"""vLLM's render server, started for as long as it is measured, and asked over one connection."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpcore

from mmroute.lab.engines.process import free_port

_STARTS_WITHIN = 300.0  # seconds
_STOPS_WITHIN = 15.0
_ANSWERS_WITHIN = 120.0
_OK = 200
NAME = "model"


class UnavailableError(Exception):
    """A peer cannot be run here; the message says why."""


class Server:
    """A running server, behind one connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}"
        self._pool = httpcore.ConnectionPool(max_connections=1, keepalive_expiry=600)
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), _ANSWERS_WITHIN)
        self._extensions = {"timeout": timeouts}

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            return self._pool.request("GET", f"{self._url}/health").status == _OK
        except (httpcore.NetworkError, httpcore.ProtocolError):
            return False

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        return self._pool.request("GET", f"{self._url}{path}").content

    def post(self, path: str, content: bytes) -> bytes:
        """The body of an answer, not yet read as JSON."""
        response = self._pool.request(
            "POST",
            f"{self._url}{path}",
            headers=[("Content-Type", "application/json")],
            content=content,
            extensions=self._extensions,
        )
        if response.status != _OK:
            raise UnavailableError(f"{path} answered {response.status}: {response.content[:200]!r}")
        return response.content


def body(messages: Sequence[Mapping[str, object]], **fields: object) -> bytes:
    """A request as bytes."""
    return json.dumps({"model": NAME, "messages": messages, "max_tokens": 1, **fields}).encode()


def _quiet_environment() -> dict[str, str]:
    """What keeps vLLM off the GPU, the network and the output."""
    return {
        **os.environ,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@contextlib.contextmanager
def render_server(python: Path | None, model: str) -> Iterator[Server]:
    """`vllm launch render` of that interpreter's environment; stopped whatever happens.

    Raises:
        UnavailableError: there is none, or it does not start.
    """
    if python is None:
        raise UnavailableError("no environment with vLLM was named")
    program = python.parent / "vllm"
    if not program.is_file():
        raise UnavailableError("there is no `vllm` beside the interpreter")
    port = free_port()
    command = [str(program), "launch", "render", model, "--served-model-name", NAME,
               "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=_quiet_environment(), start_new_session=True
        )
        try:
            with contextlib.closing(Server(port)) as server:
                _wait(server, process)
                yield server
        finally:
            _stop(process)


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while not server.healthy():
        if process.poll() is not None:
            raise UnavailableError(f"the server ended with status {process.returncode}")
        if time.monotonic() > until:
            raise UnavailableError(f"the server was not ready within {_STARTS_WITHIN:.0f} s")
        time.sleep(0.5)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The server and the processes it started, which are a group of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOPS_WITHIN)
            if sign is signal.SIGKILL:
                return
