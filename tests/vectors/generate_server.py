"""Ask a running vLLM the requests of ``server_cases.py``, and keep its answers in ``server/``.

Run it where vLLM is installed (a CPU is enough), from the repository's root; VLLM is its command:

    python tests/vectors/generate_server.py VLLM MODEL [MODEL ...]
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip


def main() -> None:
    """Write one file for each model named."""
    from small_models import SMALL_MODELS, write_model

    command, *models = sys.argv[1:]
    for model in models:
        # The same path for everyone: image hashes cover it.
        root = Path(tempfile.gettempdir()) / "mmroute-server-vectors"
        directory = write_model(SMALL_MODELS[model](), root / model)
        try:
            lines = _ask(command, model, directory)
        finally:
            shutil.rmtree(root)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (HERE / "server" / f"{model}.jsonl").write_text(text, encoding="ascii")
        print(f"{model}: {len(lines) - 1} requests")


def _ask(command: str, model: str, directory: Path) -> list[dict[str, Any]]:
    from cases import PLACEHOLDERS
    from server_cases import SERVED_NAMES, server_cases
    from small_models import SMALL_MODELS, fingerprint

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [command, "launch", "render", str(directory), "--host", "127.0.0.1", "--port", str(port),
         "--served-model-name", *SERVED_NAMES, "--enable-tokenizer-info-endpoint"],
        env={**os.environ, **_ENVIRONMENT}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(server, port)
        version = json.loads(_send(port, "GET", "/version", None, {})[1])["version"]
        meta = {"meta": {"model": model, "model_id": str(directory), "vllm": version,
                         "fingerprint": fingerprint(SMALL_MODELS[model]())}}  # fmt: skip
        lines: list[dict[str, Any]] = [meta]
        for case in server_cases(PLACEHOLDERS[model]):
            raw = case.body
            if raw is not None and not isinstance(raw, bytes):
                raw = json.dumps(raw).encode()
            status, body = _send(port, case.method, case.path, raw, case.headers)
            try:
                answer = json.loads(body)
            except ValueError:
                answer = body.decode()
            lines.append({"name": case.name, "status": status, "body": answer})
        return lines
    finally:
        server.terminate()
        server.wait(30)


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if _send(port, "GET", "/health", None, {})[0] == http.client.OK:
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("vLLM did not start")


def _send(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


if __name__ == "__main__":
    main()
