"""A program in the place of an engine's Python: it answers and announces what mmroute predicts.

It is started as `mmroute prove` starts an engine. Variables in front of the engine's command line
are for it: STAND_IN_DIES ends it at once, STAND_IN_HANGS is the number of requests after which it
answers no more, and STAND_IN_PID is a file for the number of its process.
"""

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq
from scripted_server import ScriptedServer

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.hashing import event_extra_keys


def stand_in_python(directory: Path) -> Path:
    """A program in the place of a Python that has vLLM, written into a directory."""
    path = directory / "python"
    words = (os.pathsep.join(sys.path), sys.executable, __file__)
    found, python, program = map(shlex.quote, words)
    path.write_text(f'#!/bin/sh\nPYTHONPATH={found} exec {python} {program} "$@"\n')
    path.chmod(0o755)
    return path


class StandIn:
    """Answers requests, and announces their blocks.

    Args:
        words: the arguments of ``vllm serve``.
    """

    def __init__(self, words: list[str]) -> None:
        seed = os.environ.get("PYTHONHASHSEED")
        line = " ".join([f"PYTHONHASHSEED={seed}" if seed else "", "vllm serve", words[0]])
        value = {name: words[words.index(name) + 1] for name in words if name in _VALUES}
        kept = [f"{name} {value[name]}" for name in _KEPT if name in value]
        self.size = int(value["--block-size"])
        self.model = words[0]
        self.normalizer = Normalizer.from_pretrained(
            self.model, engine_settings=VllmSettings.from_args(" ".join([line, *kept]))
        )
        self.port = int(value["--port"])
        self.events: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        self.events.bind(json.loads(value["--kv-events-config"])["endpoint"])
        self.held: dict[int, None] = {}
        self.sent = self.hits = self.queries = self.answered = 0
        self.left = int(os.environ.get("STAND_IN_HANGS", sys.maxsize))

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the response to a request for one token."""
        self.left -= 1
        if self.left < 0:
            print("INFO Running: 1 reqs, Waiting: 0 reqs", flush=True)
            time.sleep(_HANGS)
        prompt = body.get("prompt")
        field = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
        asked = {"messages": body["messages"]} if prompt is None else {field: prompt}
        names = ("add_special_tokens", "add_generation_prompt", "continue_final_message",
                 "chat_template_kwargs", "tools", "cache_salt")  # fmt: skip
        asked |= {name: body[name] for name in names if name in body}
        routing = self.normalizer.normalize(**asked)
        if not routing.exact:
            return 400, {"error": {"message": routing.message, "code": 400}}
        ids = routing.token_ids.tolist()
        cached = self._announce(routing)
        self.answered += 1
        self.hits += cached
        self.queries += len(ids)
        usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": cached}}
        return 200, {"prompt_token_ids": ids, "choices": [], "usage": usage}

    def reset(self, _: object) -> dict[str, Any]:
        """Forget all blocks. As vLLM's, the event of it comes with the next request's."""
        self.held.clear()
        return {}

    def metrics(self, _: object) -> bytes:
        """The counters of the cache, and its block size."""
        return (
            f'vllm:cache_config_info{{block_size="{self.size}"}} 1.0\n'
            f'vllm:request_success_total{{engine="0"}} {self.answered}.0\n'
            f'vllm:prefix_cache_hits_total{{engine="0"}} {self.hits}.0\n'
            f'vllm:prefix_cache_queries_total{{engine="0"}} {self.queries}.0\n'
        ).encode()

    def _announce(self, routing: Any) -> int:
        hashes = routing.block_hashes().event_ints()
        old = next((i for i, h in enumerate(hashes) if h not in self.held), len(hashes))
        cached = min(old, (len(routing.token_ids) - 1) // self.size) * self.size
        if old == len(hashes):
            return cached
        new = hashes[old:]
        self.held |= dict.fromkeys(new)
        stored = {
            "type": "BlockStored", "block_hashes": new, "block_size": self.size,
            "parent_block_hash": hashes[old - 1] if old else None,
            "token_ids": routing.token_ids[old * self.size : len(hashes) * self.size].tolist(),
            "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
            "extra_keys": (event_extra_keys(routing.extra_keys()) or [])[old:],
        }  # fmt: skip
        payload = msgspec.msgpack.encode([time.time(), [stored], 0])
        self.events.send_multipart([b"", self.sent.to_bytes(8, "big"), payload])
        self.sent += 1
        return cached


_KEPT = ("--block-size", "--max-model-len", "--chat-template", "--prefix-caching-hash-algo")
_HANGS = 600  # seconds
_VALUES = (*_KEPT, "--port", "--kv-events-config")


def main() -> None:
    """Tell the version, or serve."""
    if sys.argv[1] == "-c":
        print("0.32.0")
        return
    if "STAND_IN_DIES" in os.environ:
        print("(APIServer pid=7) WARNING 11-23 15:28:35 [a.py:1] errors like `OSError: [Errno 24]`")
        print("ValidationError: 1 validation error for ModelConfig")
        print("  Value error, the repository contains custom code: pass trust_remote_code=True")
        print("(Worker pid=9) ERROR 11-23 15:28:36 [b.py:2]     assert sum(sections) == 16")
        print("(Worker pid=9) ERROR 11-23 15:28:36 [b.py:2]            ^^^^^^^^^^^^^^^^^^^")
        print("(Worker pid=9) ERROR 11-23 15:28:36 [b.py:2] AssertionError")
        sys.exit("RuntimeError: Engine core initialization failed. See root cause above.")
    engine = StandIn(sys.argv[5:])
    Path(os.environ.get("STAND_IN_PID", os.devnull)).write_text(str(os.getpid()), encoding="utf-8")
    server = ScriptedServer(engine.port)
    card = {"id": engine.model, "root": engine.model, "parent": None, "max_model_len": 4096}
    server.routes = {
        "/health": (200, {}),
        "/version": (200, {"version": "0.32.0"}),
        "/v1/models": (200, {"data": [card]}),
        "/metrics": (200, engine.metrics),
        "/reset_prefix_cache": (200, engine.reset),
        "/v1/chat/completions": (200, engine.answer),
        "/v1/completions": (200, engine.answer),
    }
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever(0.01)


if __name__ == "__main__":
    main()
