"""A running ``vllm launch render`` and a running ``mmroute serve``, asked the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from mmroute.lab.engines.vllm.process import free_port

START_DATE: Final = "2026-01-02"
"""What vLLM writes for today into chats of gpt-oss."""
_STARTS_WITHIN: Final = 300.0  # seconds
_STOPS_WITHIN: Final = 30.0
_ANSWERS_WITHIN: Final = 300.0  # vLLM decodes and resizes pictures of any size
_VLLM_ENVIRONMENT: Final[Mapping[str, str]] = {
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_SYSTEM_START_DATE": START_DATE,
}  # fmt: skip
_JSON: Final = {"content-type": "application/json"}
# A connection each: a server closes idle ones, and slow answers of the other leave them idle.
_NOT_KEPT: Final = httpx.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered: the JSON value, or the text if it is none."""

    status: int
    body: Any


@contextlib.contextmanager
def vllm_render(command: str, model: str, *arguments: str, log: Path) -> Iterator[httpx.Client]:
    """`vllm launch render`, for as long as it is asked.

    Args:
        command: vLLM's.
        model: the directory it is started with.
        arguments: beside the model and the address.
        log: what the server prints goes there.
    """
    whole = [command, "launch", "render", model, *arguments]
    with _running(whole, {**os.environ, **_VLLM_ENVIRONMENT}, log) as client:
        yield client


@contextlib.contextmanager
def mmroute_serve(model: str, *arguments: str, log: Path) -> Iterator[httpx.Client]:
    """The server of this working directory, likewise."""
    whole = [sys.executable, "-m", "mmroute", "serve", model, *arguments]
    with _running(whole, dict(os.environ), log) as client:
        yield client


def post(client: httpx.Client, path: str, body: Any, headers: Mapping[str, str] = _JSON) -> Reply:
    """Send a body, JSON or bytes as they are."""
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    return request(client, "POST", path, raw, headers)


def request(
    client: httpx.Client, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]
) -> Reply:
    """Any request."""
    response = client.request(method, path, content=raw, headers=headers)
    try:
        return Reply(response.status_code, json.loads(response.content))
    except ValueError:
        return Reply(response.status_code, response.text)


@contextlib.contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[httpx.Client]:
    port = free_port()
    address = ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, *address], stdout=output, stderr=output, env=environment
        )
        try:
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(
                base_url=url, timeout=_ANSWERS_WITHIN, limits=_NOT_KEPT, trust_env=False
            ) as client:
                _wait(client, server, log)
                yield client
        finally:
            server.terminate()
            try:
                server.wait(_STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == httpx.codes.OK:
                return
        time.sleep(0.3)
    raise SystemExit(f"{server.args!r} did not start:\n{log.read_text(errors='replace')[-2000:]}")
