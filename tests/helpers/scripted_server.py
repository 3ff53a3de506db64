"""A server that answers as a vLLM server was seen to, or as it is told to."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ScriptedServer(ThreadingHTTPServer):
    """Keeps what it was asked.

    Attributes:
        routes: path -> status and body: JSON, bytes as they are, or what makes it of the request's,
            or makes both.
        others: status and body for all other paths.
        more_headers: of every answer.
        delay: seconds before each answer.
        asked: path and body of each request.
        raw: the bytes of each body.
        headers: of each request.
        clients: the connection each request came over.
        busiest: the most requests that were answered at a time.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.delay = 0.0
        self.more_headers: Mapping[str, str] = {}
        self.others: tuple[int, Any] = (404, {"detail": "Not Found"})
        self.asked: list[tuple[str, Any]] = []
        self.raw: list[bytes] = []
        self.headers: list[Any] = []
        self.clients: list[Any] = []
        self.running = self.busiest = 0
        self.lock = threading.Lock()
        self.routes: dict[str, tuple[int, Any]] = {
            "/version": (200, {"version": "0.33.0"}),
            "/v1/models": (
                200,
                {"object": "list", "data": [
                    {"id": "adapter", "parent": "m"}, {"id": "m", "parent": None},
                ]},
            ),
            "/tokenize": (200, {"count": 3, "max_model_len": 100, "tokens": [1, 2, 3],
                                "token_strs": None}),
            "/v1/completions/render": (200, [{
                "request_id": "cmpl-1", "token_ids": [1, 2, 3], "features": None}]),
            "/v1/chat/completions/render": (200, {
                "request_id": "chatcmpl-1", "token_ids": [7, 9, 9, 8, 9], "features": {
                    "mm_hashes": {"image": ["aa", "bb"]},
                    "mm_placeholders": {"image": [{"offset": 4, "length": 1},
                                                  {"offset": 1, "length": 2}]},
                    "kwargs_data": None}}),
        }  # fmt: skip

    def bodies(self, path: str) -> list[Any]:
        """What a route was asked."""
        return [body for asked, body in self.asked if asked == path]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond(b"")

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.respond(self.rfile.read(length))

    def respond(self, raw: bytes) -> None:
        scripted = self.server
        body = json.loads(raw) if raw else None
        with scripted.lock:
            scripted.asked.append((self.path, body))
            scripted.raw.append(raw)
            scripted.headers.append(self.headers)
            scripted.clients.append(self.client_address)
            scripted.running += 1
            scripted.busiest = max(scripted.busiest, scripted.running)
        time.sleep(scripted.delay)
        status, answer = scripted.routes.get(self.path, scripted.others)
        answer = answer(body) if callable(answer) else answer
        status, answer = answer if isinstance(answer, tuple) else (status, answer)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with scripted.lock:
            scripted.running -= 1
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in scripted.more_headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass
