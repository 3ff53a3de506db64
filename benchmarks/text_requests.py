"""Token IDs and block hashes of text-only requests: mmroute, `tokenizers`, fastokens and vLLM.

    python benchmarks/text_requests.py MODEL_DIR... [--vllm-python PATH] [--requests 100]

PATH is the interpreter of an environment that has vLLM and what mmroute needs. There vLLM's own
renderer answers the same requests in process, up to where they enter its scheduler, and its own
hasher hashes their blocks; and `vllm launch render` is asked by `/tokenize`. Dynamo's frontend
encodes with one of the two encoders (its Python package has no tokenizer to call): they are
measured on the rendered text.

Every text is new. Times are processor time of a request, of all threads, least and median; those
of `/tokenize` are elapsed time, as its client sees it. All token IDs and hashes of vLLM are
compared with mmroute's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.mixes import chat_request, conversation
from benchmarks.render_server import NAME, render_server
from mmroute import Normalizer, Request
from mmroute.chat import Chat
from mmroute.reuse.fast_paths import EncoderChoice, FastPaths

_BLOCK = 16
_ALGORITHM = "sha256"
_WARM_UP = 5
_Answer = tuple[list[int], list[str]]
_KINDS: dict[str, Callable[[int], Any]] = {
    "1,000 words": partial(chat_request, words=1000),
    "chat of 20 turns, 40,000 characters": partial(conversation, turns=20),
}


def main() -> None:
    """Measure each model, and print a table of microseconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", metavar="MODEL_DIR", type=Path, nargs="+")
    parser.add_argument("--vllm-python", metavar="PATH", type=Path)
    parser.add_argument("--requests", metavar="N", type=int, default=100)
    parser.add_argument("--as-vllm", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_vllm is not None:
        _as_vllm(arguments.models[0], arguments.as_vllm)
        return
    print("| model | requests | who | us, least | us, median |\n| --- | --- | --- | ---: | ---: |")
    for model in arguments.models:
        for kind, request in _KINDS.items():
            requests = [request(seed) for seed in range(arguments.requests + _WARM_UP)]
            for who, times in _measured(model, requests, arguments.vllm_python):
                least, median = min(times) / 1000, float(np.median(times)) / 1000
                print(
                    f"| {model.name} | {kind} | {who} | {least:,.0f} | {median:,.0f} |", flush=True
                )


def _measured(
    model: Path, requests: Sequence[Any], vllm_python: Path | None
) -> Iterator[tuple[str, list[int]]]:
    """Who, and nanoseconds of each request."""
    # No cache: the same texts are asked for IDs, and again for IDs and hashes.
    ours = Normalizer.from_pretrained(
        model, fast_paths=FastPaths(text_cache_bytes=0, hash_cache_bytes=0)
    )
    plain = Normalizer.from_pretrained(
        model, fast_paths=FastPaths(encoder=EncoderChoice.TOKENIZERS, text_cache_bytes=0)
    )
    print(f"{model.name}: mmroute encodes with {ours.stats()}", file=sys.stderr)
    answers: list[_Answer] = []

    def answer(normalizer: Normalizer, request: Any) -> _Answer:
        routing = normalizer.normalize(**request)
        return routing.token_ids.tolist(), routing.block_hashes(_ALGORITHM, block_size=_BLOCK).hex()

    yield "mmroute, IDs", _timed(lambda r: ours.normalize(**r).token_ids, requests)
    yield "mmroute, IDs and hashes", _timed(partial(answer, ours), requests, answers.append)
    yield "mmroute with `tokenizers`, IDs", _timed(lambda r: plain.normalize(**r), requests)
    texts = [_rendered(ours, request) for request in requests]
    if all(isinstance(text, str) for text in texts):
        for name, encode in _encoders(plain, texts):
            yield f"{name} alone, on the rendered text", _timed(encode, texts)
    if vllm_python is not None:
        yield from _of_vllm(model, requests, answers, vllm_python)


def _rendered(normalizer: Normalizer, fields: Any) -> object:
    model, request = normalizer.model, Request.of(fields)
    chat: Chat = model.chat
    return chat.render(chat.read(request), {}, request)


def _encoders(
    plain: Normalizer, texts: Sequence[Any]
) -> Iterator[tuple[str, Callable[[Any], object]]]:
    backend: Any = plain.model.tokenizer
    yield "`tokenizers`", lambda text: backend.backend.encode(text, add_special_tokens=False).ids
    try:
        import fastokens
    except ImportError:
        return
    fast = fastokens.Tokenizer.from_json_str(backend.backend.to_str())
    right = backend.backend.encode(texts[0], add_special_tokens=False).ids
    found, _ = fast.encode_batch_flat([texts[0]], add_special_tokens=False)
    if np.frombuffer(found, "<u4").tolist() == right:
        yield "fastokens", lambda text: fast.encode_batch_flat([text], add_special_tokens=False)


def _timed(
    call: Callable[[Any], Any], inputs: Sequence[Any], keep: Callable[[Any], object] | None = None
) -> list[int]:
    times = []
    for one in inputs:
        start = time.process_time_ns()
        found = call(one)
        times.append(time.process_time_ns() - start)
        if keep is not None:
            keep(found)
    return times[_WARM_UP:]


def _of_vllm(
    model: Path, requests: Sequence[Any], answers: Sequence[_Answer], python: Path
) -> Iterator[tuple[str, list[int]]]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "requests.json"
        file.write_text(json.dumps([dict(request) for request in requests]))
        command = [str(python), __file__, str(model), "--as-vllm", str(file)]
        subprocess.run(
            command, check=True, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        told = json.loads(file.read_text())
    wrong = sum(theirs != list(mine) for theirs, mine in zip(told["answers"], answers, strict=True))
    if wrong:
        raise SystemExit(f"{model.name}: {wrong} answers of vLLM differ from mmroute's")
    yield "vLLM in process, IDs", told["ids"][_WARM_UP:]
    yield "vLLM in process, IDs and hashes", told["both"][_WARM_UP:]
    times = []
    with render_server(python, str(model)) as server:
        for request, (ids, _) in zip(requests, answers, strict=True):
            content = json.dumps({"model": NAME, **request}).encode()
            start = time.perf_counter_ns()
            answer = server.post("/tokenize", content)
            times.append(time.perf_counter_ns() - start)
            if json.loads(answer)["tokens"] != ids:
                raise SystemExit(f"{model.name}: an answer of /tokenize differs from mmroute's")
    yield "vLLM's `/tokenize` over HTTP, IDs, elapsed", times[_WARM_UP:]


def _as_vllm(model: Path, file: Path) -> None:
    """Answer the requests of a file with vLLM, and write answers and times in its place."""
    from mmroute.lab.parity.oracles.vllm import VllmOracle
    from mmroute.model_directory import find_model

    engine = VllmOracle(find_model(str(model)))
    import vllm.v1.core.kv_cache_utils as kv
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.request import Request as CoreRequest

    function = get_hash_fn_by_name(_ALGORITHM)
    kv.init_none_hash(function)
    hasher = kv.get_request_block_hasher(_BLOCK, function)
    told: dict[str, list[Any]] = {"ids": [], "both": [], "answers": []}
    for request in json.loads(file.read_text()):
        start = time.process_time_ns()
        entered, _ = engine.enter(request)
        told["ids"].append(time.process_time_ns() - start)
        hashed = CoreRequest.from_engine_core_request(entered, hasher)
        told["both"].append(time.process_time_ns() - start)
        hashes = [value.hex() for value in hashed.block_hashes]
        told["answers"].append([list(entered.prompt_token_ids), hashes])
    file.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
