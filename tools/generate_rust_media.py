"""Compute what vLLM's Rust frontend makes of the requests with images in ``vectors/rust/media``.

Run it from the repository's root in an environment of vLLM 0.33.0, whose wheel has ``vllm-rs``:

    python tools/generate_rust_media.py

An environment of vLLM 0.32.0 with the same program gives the requests whose answers are others
there.

The whole frontend runs (``vllm-rs serve``). In place of the engine there is a process that answers
its handshake and writes down the requests that the frontend hands on: their token IDs, and the name
and place of each image. Nothing in the answers is computed here.

Source: vLLM ``rust/src/engine-core-client/src/mock_engine.py``, ``protocol/handshake.rs``,
``protocol/request.rs`` and ``protocol/output.rs``, whose messages these are.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import generate_rust
import httpx
import msgspec
import zmq
from engine import ENGINE_VERSION
from servers import running
from vector_files import requests_of, runs, take_no_arguments, write_lines

from mmroute.lab.engines.process import free_port

FOLDER: Final = generate_rust.FOLDER / "media"
CONTEXT: Final = 8192
_IDENTITY: Final = bytes(2)  # of the engine of rank 0
_ADD, _UTILITY = b"\0", b"\3"
_READY: Final = {
    "max_model_len": CONTEXT, "num_gpu_blocks": 4096, "block_size": 16, "dp_stats_address": None,
    "dtype": "float32", "vllm_version": ENGINE_VERSION, "world_size": 1,
    "data_parallel_size": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1, "data_parallel_rank": 0, "max_num_seqs": 256,
    "max_num_batched_tokens": 8192, "instance_id": "listener", "supports_lora": False,
    "max_loras": 0, "kv_cache_size_tokens": None, "kv_cache_max_concurrency": None,
}  # fmt: skip


class Listener:
    """An engine that answers every request with one token."""

    def __init__(self, port: int) -> None:
        self._request: list[Any] | None = None
        self._frames: list[bytes] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, args=(port,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._thread.join()

    def take(self) -> list[Any] | None:
        """The request that came since the last call, as the frontend sent it."""
        request, self._request = self._request, None
        return request

    def _run(self, port: int) -> None:
        context = zmq.Context()
        handshake = _connected(context, zmq.DEALER, f"tcp://127.0.0.1:{port}")
        handshake.send(_status("HELLO"))
        while not handshake.poll(50):
            if self._closed:
                context.destroy(linger=0)
                return
        addresses = msgspec.msgpack.decode(handshake.recv())["addresses"]
        requests = _connected(context, zmq.DEALER, addresses["inputs"][0])
        requests.send(msgspec.msgpack.encode(_READY))
        answers = _connected(context, zmq.PUSH, addresses["outputs"][0])
        handshake.send(_status("READY"))
        while not self._closed:
            if requests.poll(50):
                kind, *frames = requests.recv_multipart()
                if (answer := self._answer(kind, frames)) is not None:
                    answers.send(msgspec.msgpack.encode(answer))
        context.destroy(linger=0)

    def _answer(self, kind: bytes, frames: list[bytes]) -> list[Any] | None:
        body = msgspec.msgpack.decode(frames[0])
        if kind == _UTILITY:
            _, call, method, *_ = body
            result = ["generate"] if method == "get_supported_tasks" else None
            return [0, [], None, time.time(), [call, None, [None, result]]]
        if kind != _ADD:
            return None
        self._frames, self._request = frames, body
        name, finished = body[0], 1
        return [0, [[name, [1], None, None, None, finished]], None, time.time(), None, [name]]

    def images(self, request: list[Any]) -> list[list[Any]]:
        """Of each image of the last request: its name, offset, length, and runs of features."""
        return [
            [
                feature["identifier"],
                feature["mm_position"]["offset"],
                feature["mm_position"]["length"],
                runs(map(bool, self._mask(feature["mm_position"]))),
            ]
            for feature in request[2] or ()
        ]

    def _mask(self, position: dict[str, Any]) -> bytes:
        raw = position["is_embed"][2]
        return self._frames[raw] if isinstance(raw, int) else bytes(raw.data)


class Frontend(generate_rust.Frontend):
    """A running ``vllm-rs serve``, and the engine behind it."""

    def __init__(self, client: httpx.Client, engine: Listener, name: str) -> None:
        super().__init__(client)
        self.engine = engine
        self.name = name

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        """What it makes of a chat: ``token_runs`` and ``images``, or ``refused``."""
        body = {"model": self.name, "max_tokens": 1, **case}
        reply = self.post("/v1/chat/completions", body)
        request = self.engine.take()
        if request is None:
            return {"refused": generate_rust.told(reply)[:120]}
        return {"token_runs": runs(request[1]), "images": self.engine.images(request)}


def _connected(context: zmq.Context[Any], kind: int, address: str) -> Any:
    opened = context.socket(kind)
    if kind == zmq.DEALER:
        opened.setsockopt(zmq.IDENTITY, _IDENTITY)
    opened.connect(address)
    return opened


def _status(status: str) -> bytes:
    message = {"status": status, "local": False, "headless": True, "parallel_config_hash": None}
    return msgspec.msgpack.encode(message)


@contextlib.contextmanager
def serving(files: dict[str, Any], name: str) -> Iterator[Frontend]:
    """The frontend of a small model, by a model string."""
    from small_models import write_model

    port = free_port()
    command = [
        str(generate_rust.binary()), "serve", name, "--handshake-host", "127.0.0.1",
        "--handshake-port", str(port), "--data-parallel-size", "1",
        "--data-parallel-size-local", "0",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Listener(port)) as engine:
        write_model(files, Path(folder) / name)
        with running(command, {}, Path(folder)) as client:
            yield Frontend(client, engine, name)


def main() -> None:
    """Write one file for each model, one for changed files and one for model strings.

    For another version, write the answers of the models that differ.
    """
    take_no_arguments(__doc__)
    from comparison import read_lines
    from small_models import RUST_MODELS, changed_files, fingerprint

    version = importlib.metadata.version("vllm").partition("+")[0]
    others: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        meta, *known = read_lines(path)
        if "model" not in meta:
            continue
        files, cases = RUST_MODELS[meta["model"]](), requests_of(path)
        answers = answers_of(files, meta["name"], map(body_of, cases))
        if version == ENGINE_VERSION:
            meta |= {"fingerprint": fingerprint(files), "vllm": version}
            lines = zip(cases, answers, strict=True)
            write_lines(path, [meta, *({**case, "expect": expect} for case, expect in lines)])
        others += [
            {"model": meta["model"], "id": line["id"], "expect": expect}
            for line, expect in zip(known, answers, strict=True)
            if told(expect) != told(line["expect"])
        ]
    if version != ENGINE_VERSION:
        write_lines(FOLDER / f"{version}.jsonl", [{"vllm": version}, *others])
        return
    for path in (FOLDER / "changed.jsonl", FOLDER / "names.jsonl"):
        lines_of_path = []
        for case in requests_of(path):
            files = RUST_MODELS[case["model"]]()
            if "changed" in case:
                files = changed_files(files, *case["changed"])
            (expect,) = answers_of(files, case["name"], [body_of(case)])
            lines_of_path.append({**case, "expect": expect})
        write_lines(path, [{"vllm": version}, *lines_of_path])


def body_of(case: dict[str, Any]) -> dict[str, Any]:
    """What is sent of a line."""
    return {k: v for k, v in case.items() if k not in ("id", "model", "name", "changed")}


def answers_of(
    files: dict[str, Any], name: str, cases: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What the frontend of a model makes of requests; all are refused if it does not start."""
    try:
        with serving(files, name) as frontend:
            return [frontend.answer(case) for case in cases]
    except SystemExit as error:
        return [{"refused": str(error)} for _ in cases]


def told(expect: dict[str, Any]) -> dict[str, Any]:
    """An answer without the words of a refusal."""
    return {"refused": True} if "refused" in expect else expect


if __name__ == "__main__":
    main()
