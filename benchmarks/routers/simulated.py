"""Workers that compute nothing: token IDs and hashes by mmroute, a cache that evicts as vLLM's.

They speak HTTP and publish events as engines do, so that any router can stand in front of them.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec
import zmq
from fleet import BLOCK_SIZE, ENGINE, Counted, Fleet

from mmroute import Normalizer, from_openai
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.hashing import event_extra_keys
from mmroute.lab.traces.block_cache import BlockCache

ADAPTER: Final = "adapter"  # the name of a LoRA adapter that each worker has
_RENDER: Final = "/render"


class SimulatedEngine:
    """One worker.

    Args:
        name: the worker's name.
        fleet: the fleet, for the model's names.
        normalizer: computes what an engine would hold.
    """

    def __init__(self, name: str, served: str, blocks: int, normalizer: Normalizer) -> None:
        self.name, self._served, self._blocks = name, served, blocks
        self._normalizer = normalizer
        self._lock = threading.Lock()
        self._counted = Counted(0, 0, 0)
        self._cache = BlockCache(blocks)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        self.events = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._published = 0
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.engine = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def post(self, path: str, data: bytes) -> dict[str, Any]:
        body = json.loads(data)
        routing = self._normalizer.answer(from_openai(body))
        ids = routing.token_ids.tolist()
        if path.endswith(_RENDER):
            return {"token_ids": ids}
        with self._lock:
            cached = self._serve(routing, ids)
            requests, hits, queries = self._counted
            self._counted = Counted(requests + 1, hits + cached, queries + len(ids))
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1,
                 "prompt_tokens_details": {"cached_tokens": cached}}  # fmt: skip
        message = {"role": "assistant", "content": "."}
        choice = {"index": 0, "message": message, "text": ".", "finish_reason": "length"}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1,
                "model": body["model"], "choices": [choice], "usage": usage}  # fmt: skip

    def counted(self) -> Counted:
        return self._counted

    def reset(self) -> None:
        self._cache = BlockCache(self._blocks)
        self._publish([{"type": "AllBlocksCleared"}])

    def close(self) -> None:
        """End its server and its sockets."""
        self.server.shutdown()
        self.server.server_close()
        self._socket.close(0)

    def card(self) -> dict[str, Any]:
        """What ``/v1/models`` answers."""
        card = {"id": self._served, "object": "model", "root": self._served, "parent": None,
                "max_model_len": 8192, "owned_by": "vllm", "created": 1}  # fmt: skip
        adapter = {**card, "id": ADAPTER, "root": "/adapter", "parent": self._served}
        return {"object": "list", "data": [card, adapter]}

    def _serve(self, routing: Any, ids: list[int]) -> int:
        hashes = routing.block_hashes().event_ints()
        before = Counter(self._cache.held())
        lookup = max(0, len(ids) - 1) // BLOCK_SIZE
        ends = len(ids) % BLOCK_SIZE > 0
        hits = self._cache.serve(hashes, lookup=lookup, ends_in_block=ends)
        after = Counter(self._cache.held())
        new = next((n for n, h in enumerate(hashes) if h not in before), len(hashes))
        extra = event_extra_keys(routing.extra_keys()) or [None] * len(hashes)
        events: list[dict[str, Any]] = []
        if gone := list((before - after).elements()):
            events.append({"type": "BlockRemoved", "block_hashes": gone, "medium": "GPU",
                           "group_idx": 0})  # fmt: skip
        if hashes[new:]:
            events.append({
                "type": "BlockStored", "block_hashes": hashes[new:],
                "parent_block_hash": hashes[new - 1] if new else None,
                "token_ids": ids[new * BLOCK_SIZE : len(hashes) * BLOCK_SIZE],
                "block_size": BLOCK_SIZE, "lora_id": None, "medium": "GPU", "group_idx": 0,
                "lora_name": routing.lora.name if routing.lora else None,
                "extra_keys": extra[new:], "kv_cache_spec_kind": "full_attention",
            })  # fmt: skip
        if events:
            self._publish(events)
        return hits * BLOCK_SIZE

    def _publish(self, events: list[dict[str, Any]]) -> None:
        payload = msgspec.msgpack.encode([time.time(), events, 0])
        self._socket.send_multipart([b"", self._published.to_bytes(8, "big"), payload])
        self._published += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    engine: SimulatedEngine

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        pages = {"/health": {}, "/v1/models": self.server.engine.card(),
                 "/version": {"version": "0.33.0"}}  # fmt: skip
        page = pages.get(self.path)
        self._send(404 if page is None else 200, page or {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.removesuffix(_RENDER) not in ("/v1/chat/completions", "/v1/completions"):
            return self._send(404, {})
        return self._send(200, self.server.engine.post(self.path, data))

    def _send(self, status: int, page: dict[str, Any]) -> None:
        data = json.dumps(page).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def simulation(model: str, served: str, count: int, blocks: int) -> Iterator[Fleet]:
    """A fleet of simulated workers."""
    settings = VllmSettings.from_args(ENGINE.format(model=served, blocks=blocks))
    loras = {ADAPTER: "/adapter"}
    told = replace(settings, loras=loras)
    normalizer = Normalizer.from_pretrained(model, engine_settings=told)
    workers = [SimulatedEngine(f"worker-{n}", served, blocks, normalizer) for n in range(count)]
    try:
        with Fleet(model, served, settings, workers, blocks, loras) as fleet:
            yield fleet
    finally:
        for worker in workers:
            worker.close()
