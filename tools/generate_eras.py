"""Compute what earlier versions of vLLM answer to the requests of ``vectors/images``.

Run it in an environment of vLLM 0.33.0, with the ``vllm`` package of another version's wheel in
front of it, from the repository's root:

    PYTHONPATH=DIRECTORY python tools/generate_eras.py [MODEL ...]

DIRECTORY holds that package and its ``dist-info``. The answers go into
``vectors/versions/ERA/MODEL.jsonl``, with the versions that gave them; a version that answers
otherwise than its era is an error. A version that is not known is compared with the newest era.
Nothing in the answers is computed here.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import inspect
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from engine import after_hop, hashed, published, range_of
from vector_files import VECTORS, runs, write_lines

MODELS = ("small-qwen2.5-vl", "small-pixtral-hf")
# What mmroute does not compute: identities under processor arguments, before this version.
COVERED_SINCE = 31
# Of the others no event is kept: they are all alike, and long.
WITH_EVENTS = ("jpeg", "same-twice", "turns", "uuid", "salt", "lora", "lora-salt", "text-only")
PROMPT = ("refused", "token_runs", "placeholders")
BLOCK_SIZE = 16
HASH_SEED = "0"  # versions before 0.29 draw one at random


def main() -> None:
    """Write one file for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    run_on_a_cpu()
    from comparison import with_files
    from image_vectors import file_urls
    from small_models import SMALL_MODELS, fingerprint, write_model

    from mmroute.engine import find_engine
    from mmroute.engines.running import running_engine

    urls, running = file_urls(), importlib.metadata.version("vllm")
    profile = running_engine("vllm", running).profile or find_engine("vllm")
    era = VECTORS / "versions" / profile.release.era.replace(" to ", "-")
    for model in arguments.models:
        _, *cases = map(json.loads, (VECTORS / "images" / f"{model}.jsonl").open(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as directory:
            files = SMALL_MODELS[model]()
            engine = Engine(write_model(files, Path(directory)), f"org/{model}")
            lines: list[Any] = []
            for case in cases:
                answer = engine.answer(with_files(case, urls))
                if case["id"] not in WITH_EVENTS:
                    answer.pop("event", None)
                if case.get("mm_processor_kwargs") and int(running.split(".")[1]) < COVERED_SINCE:
                    answer = {k: v for k, v in answer.items() if k in PROMPT}
                lines.append({"id": case["id"], **answer})
        meta = {"model": model, "model_id": f"org/{model}", "fingerprint": fingerprint(files)}
        lines = json.loads(json.dumps(lines))
        path = era / f"{model}.jsonl"
        versions = [running]
        if path.is_file():
            before, *old = map(json.loads, path.open(encoding="utf-8"))
            now = {line["id"]: line for line in lines}
            if wrong := [was["id"] for was in old if told(now[was["id"]]) != told(was)]:
                sys.exit(f"not as vLLM {before['versions']}: {', '.join(wrong)}")
            lines, versions = old, sorted({*before["versions"], running})
        write_lines(path, [{**meta, "versions": versions}, *lines])


def told(line: dict[str, Any]) -> dict[str, Any]:
    """An answer without the words of a refusal, and with what mmroute reads in its event."""
    from mmroute.kv_events import BlockStored, decode_events

    answer = {name: value for name, value in line.items() if name not in ("refused", "event")}
    if "event" in line:
        events = decode_events(bytes.fromhex(line["event"])).events
        known = [event for event in events if isinstance(event, BlockStored)]
        answer["event"] = [(e.block_hashes, e.token_ids, e.block_size) for e in known]
    return answer


def run_on_a_cpu() -> None:
    """By their own number, versions before 0.27 see that they were built for a CPU."""
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    inner = importlib.metadata.version
    with mock.patch.object(
        importlib.metadata, "version", lambda name: inner(name) + "+cpu" * (name == "vllm")
    ):
        import vllm.engine.arg_utils  # first, or 0.18 imports itself in a circle
        import vllm.platforms
        from vllm.model_executor.models import registry

    plugins = vllm.platforms.builtin_platform_plugins
    for name in plugins:
        plugins[name] = lambda: None
    plugins["cpu"] = lambda: "vllm.platforms.cpu.CpuPlatform"
    registry._run_in_subprocess = lambda function: function()


class Engine:
    """One model, up to the scheduler, by what the versions since 0.18 have in common."""

    def __init__(self, directory: Path, model_id: str) -> None:
        from vllm.config import CacheConfig, ModelConfig, VllmConfig
        from vllm.renderers.registry import renderer_from_config
        from vllm.v1.engine.input_processor import InputProcessor

        model = str(directory)
        config = VllmConfig(
            model_config=ModelConfig(model=model, tokenizer=model, dtype="bfloat16", seed=0),
            cache_config=CacheConfig(block_size=BLOCK_SIZE),
        )
        self.renderer: Any = renderer_from_config(config)
        self.input_processor: Any = InputProcessor(config, self.renderer)
        self.input_processor._validate_lora = lambda *_: None  # adapters are only named here
        # The model string a server would have been started with.
        type(self.renderer.mm_processor.info).model_id = property(lambda _: model_id)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is stored for a chat, or the beginning of its refusal."""
        try:
            return stored(*self.enter(request))
        except Exception as error:
            message = re.sub(r" at 0x[0-9A-Fa-f]+", "", f"{type(error).__name__}: {error}")
            return {"refused": message[:160]}

    def enter(self, request: dict[str, Any]) -> tuple[Any, list[Any]]:
        """A chat as the scheduler gets it, and the ranges of its images."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.lora.request import LoRARequest
        from vllm.renderers.params import merge_kwargs
        from vllm.sampling_params import SamplingParams

        messages = copy.deepcopy(request["messages"])  # vLLM writes into those it is given
        kwargs = {"mm_processor_kwargs": request.get("mm_processor_kwargs")}
        chat = ChatCompletionRequest(model="m", messages=messages, max_tokens=1, **kwargs)
        parameters = chat.build_chat_params(None, "auto").with_defaults(
            merge_kwargs(None, {"tools": None, "tokenize": False}),
            default_mm_processor_kwargs=chat.mm_processor_kwargs,
        )
        _, prompt = self.renderer.render_messages(chat.messages, parameters)
        tokens = chat.build_tok_params(self.renderer.model_config)
        (tokenized,) = self.renderer.tokenize_prompts([prompt], tokens)
        for name in ("mm_processor_kwargs", "cache_salt"):
            if request.get(name):
                tokenized[name] = request[name]
        process = self.renderer.process_for_engine
        more = (
            {"tok_params": tokens} if "tok_params" in inspect.signature(process).parameters else {}
        )
        engine_input = process(tokenized, time.time(), **more)
        lora = request.get("lora")
        core_request = self.input_processor.process_inputs(
            request_id="0",
            prompt=engine_input,
            params=SamplingParams(max_tokens=1),
            supported_tasks=("generate",),
            lora_request=LoRARequest(**lora) if lora else None,
        )
        return core_request, engine_input.get("mm_placeholders", {}).get("image", [])


def stored(core_request: Any, ranges: list[Any]) -> dict[str, Any]:
    """The prompt, what its images are called, its block hashes and its event as it is sent."""
    import msgspec
    from vllm.distributed.kv_events import KVEventBatch

    request = hashed(after_hop(core_request), "sha256", BLOCK_SIZE)
    count = len(request.block_hashes)
    batch = KVEventBatch(ts=1.5, events=published(request, BLOCK_SIZE))
    return {
        "token_runs": runs(list(request.prompt_token_ids)),
        "placeholders": [range_of(p) for p in ranges],
        "mm_identifiers": [feature.identifier for feature in core_request.mm_features or []],
        "num_blocks": count,
        "last_block_hash": request.block_hashes[-1].hex() if count else None,
        "event": msgspec.msgpack.encode(batch).hex(),
    }


if __name__ == "__main__":
    main()
