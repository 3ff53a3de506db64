"""Compute what earlier versions of vLLM answer to the requests of ``vectors/images``.

Run it in an environment of vLLM 0.33.0, with the ``vllm`` package of another version's wheel in
front of it, from the repository's root:

    PYTHONPATH=DIRECTORY python tests/generators/generate_eras.py [MODEL ...]

DIRECTORY holds that package and its ``dist-info``. The answers go into
``vectors/versions/ERA/MODEL.jsonl``, with the versions that gave them; a version that answers
otherwise than its era is an error. Nothing in them is computed here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
VECTORS = HERE.parent / "conformance" / "vectors"
TESTS = HERE.parent
sys.path[:0] = [str(p) for p in (HERE, TESTS / "helpers", TESTS / "conformance", TESTS.parent)]

MODELS = ("small-qwen2.5-vl", "small-pixtral-hf")
# What mmroute does not compute: identities under processor arguments, before this version.
COVERED_SINCE = 31
# Of the others no event is kept: they are all alike, and long.
WITH_EVENTS = ("jpeg", "same-twice", "turns", "uuid", "salt", "lora", "lora-salt", "text-only")
PROMPT = ("refused", "token_runs", "placeholders")
HASH_SEED = "0"  # versions before 0.29 draw one at random


def main() -> None:
    """Write one file for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    run_on_a_cpu()
    from comparison import with_files
    from engine import build_engine, write_lines
    from image_vectors import file_urls

    from mmroute.engines import find_engine

    urls, running = file_urls(), importlib.metadata.version("vllm")
    era = VECTORS / "versions" / find_engine(f"vllm=={running}").era.replace(" to ", "-")
    era.mkdir(exist_ok=True)
    for model in arguments.models:
        _, *cases = map(json.loads, (VECTORS / "images" / f"{model}.jsonl").open(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as directory:
            engine, fingerprint = build_engine(model, Path(directory), arguments)
            adapt(engine)
            lines: list[Any] = []
            for case in cases:
                answer = engine._answer(with_files(case, urls), stored)
                if case["id"] not in WITH_EVENTS:
                    answer.pop("event", None)
                if case.get("mm_processor_kwargs") and int(running.split(".")[1]) < COVERED_SINCE:
                    answer = {k: v for k, v in answer.items() if k in PROMPT}
                lines.append({"id": case["id"], **answer})
        print(f"{running} {model}: {sum('refused' in line for line in lines)} refused", flush=True)
        meta = {"model": model, "model_id": f"org/{model}", "fingerprint": fingerprint}
        lines = json.loads(json.dumps(lines))
        path = era / f"{model}.jsonl"
        versions = [running]
        if path.is_file():
            before, *old = map(json.loads, path.open(encoding="utf-8"))
            if wrong := [
                new["id"] for new, was in zip(lines, old, strict=True) if told(new) != told(was)
            ]:
                sys.exit(f"not as vLLM {before['versions']}: {', '.join(wrong)}")
            lines, versions = old, sorted({*before["versions"], running})
        write_lines(path, [{**meta, "versions": versions}, *lines])


def told(line: dict[str, Any]) -> dict[str, Any]:
    """An answer without the words of a refusal."""
    return {name: value for name, value in line.items() if name != "refused"}


def run_on_a_cpu() -> None:
    """By their own number, versions before 0.27 see that they were built for a CPU."""
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    inner = importlib.metadata.version
    with mock.patch.object(
        importlib.metadata, "version", lambda name: inner(name) + "+cpu" * (name == "vllm")
    ):
        import vllm.platforms
        from vllm.model_executor.models import registry

    plugins = vllm.platforms.builtin_platform_plugins
    for name in plugins:
        plugins[name] = lambda: None
    plugins["cpu"] = lambda: "vllm.platforms.cpu.CpuPlatform"
    registry._run_in_subprocess = lambda function: function()


def adapt(engine: Any) -> None:
    """Versions before 0.31 take no parameters of tokenization again."""
    renderer = engine._engine.renderer
    inner = renderer.process_for_engine
    if "tok_params" not in inspect.signature(inner).parameters:
        renderer.process_for_engine = lambda prompt, arrival, **_: inner(prompt, arrival)


def stored(request: Any, ranges: list[Any]) -> dict[str, Any]:
    """The prompt, what its images are called, its block hashes and its event as it is sent."""
    import msgspec
    import vllm.v1.core.kv_cache_utils as kv
    from engine import BLOCK_SIZE, _after_hop, _range, runs
    from vllm.distributed.kv_events import KVEventBatch
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.request import Request

    request = _after_hop(request)
    function = get_hash_fn_by_name("sha256")
    kv.init_none_hash(function)
    hasher = kv.get_request_block_hasher(BLOCK_SIZE, function)
    hashed = Request.from_engine_core_request(request, hasher)
    count = len(hashed.block_hashes)
    pool = BlockPool(count + 2, True, BLOCK_SIZE, enable_kv_cache_events=True)
    pool.cache_full_blocks(hashed, pool.get_new_blocks(count), 0, count, BLOCK_SIZE, 0)
    batch = msgspec.msgpack.encode(KVEventBatch(ts=1.5, events=pool.take_events()))
    return {
        "token_runs": runs(list(request.prompt_token_ids)),
        "placeholders": [_range(p) for p in ranges],
        "mm_identifiers": [feature.identifier for feature in request.mm_features or []],
        "num_blocks": count,
        "last_block_hash": hashed.block_hashes[-1].hex() if count else None,
        "event": batch.hex(),
    }


if __name__ == "__main__":
    main()
