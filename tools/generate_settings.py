"""Compute what vLLM answers, hashes and publishes when it is started with one setting or another.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_settings.py --params DIR/params.json

Nothing here decides what is right: the command line is parsed by vLLM's own parser, and its own
renderer, input checks, block hasher, block pool and event encoder do the rest. Each line of the
files is also a line that ``mmroute validate --events FILE`` reads.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import (
    ENGINE_VERSION,
    after_hop,
    hashed,
    meta,
    parser_of,
    published,
    refuse_other_versions,
    write_files,
)
from vector_files import VECTORS, requests_of, runs, write_lines

TIME = 1.5


def main() -> None:
    """Write the files."""
    folder = VECTORS / "settings"
    known = sorted(path.stem for path in folder.glob("*.jsonl"))
    arguments = parser_of(__doc__, known).parse_args()
    refuse_other_versions()
    os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")
    with tempfile.TemporaryDirectory() as directory:
        _write_answers(Path(directory))
        for model in arguments.models:
            fingerprint = write_files(model, Path(directory) / model, arguments.params)
            os.chdir(directory)  # a relative path is the model string of an engine
            lines = [meta(model, fingerprint=fingerprint)]
            cases = requests_of(folder / f"{model}.jsonl")
            for line, of_line in groupby(cases, key=lambda case: case["arguments"]):
                lines += _engine(line, of_line)
            write_lines(folder / f"{model}.jsonl", lines)


def _write_answers(directory: Path) -> None:
    """What a server that was started with some settings says of itself, in parts."""
    path = VECTORS / "server" / "running_vllm.json"
    line = json.loads(path.read_text(encoding="utf-8"))["arguments"]
    _, _, model, *telling = shlex.split(line)
    write_files(model, directory / model)
    os.chdir(directory)
    served = Served([model, *telling])
    from vllm.entrypoints.serve.dev.server_info.api_router import (
        PydanticVllmConfig,
        _get_vllm_env_vars,
    )

    config = PydanticVllmConfig.dump_python(served.config, mode="json", fallback=str)
    parts = ("cache_config", "lora_config", "model_config", "parallel_config", "scheduler_config",
             "speculative_config")  # fmt: skip
    own = {name: config[name] for name in parts}
    own["model_config"] = {
        name: value
        for name, value in own["model_config"].items()
        if not name.startswith(("hf_config", "hf_text_config", "hf_image"))
    }
    environment = {
        name: value
        for name, value in _get_vllm_env_vars().items()
        if name.startswith(("VLLM_ALLOW_LONG", "VLLM_MAX_", "VLLM_MEDIA_CONNECTOR"))
    }
    models = asyncio.run(served.state.openai_serving_models.show_available_models())
    answers = {
        "/version": {"version": ENGINE_VERSION},
        "/v1/models": models.model_dump(mode="json"),
        "/server_info?config_format=json": {
            "vllm_config": own, "vllm_env": environment, "system_env": {},
        },
    }  # fmt: skip
    text = json.dumps({"arguments": line, "answers": answers}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _engine(line: str, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One engine, and what it makes of each request."""
    words = shlex.split(line)
    environment = {}
    while words and (found := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
        environment[found[1]] = found[2]
        words.pop(0)
    words = [word for word in words if word not in ("vllm", "serve")]
    kept = {name: os.environ.get(name) for name in ("PYTHONHASHSEED", *environment)}
    os.environ.pop("PYTHONHASHSEED", None)
    os.environ.update(environment)
    try:
        engine = Served(words)
        for case in cases:
            yield {**case, **engine.answer(case["request"])}
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class Served:
    """One engine of vLLM, started as ``vllm serve`` starts it, up to the block pool."""

    def __init__(self, words: list[str]) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.common.cli_args import (
            make_arg_parser,
            validate_parsed_serve_args,
        )
        from vllm.entrypoints.launchers.render.app_state import init_render_app_state
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.input_processor import InputProcessor

        self.args = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
        self.args.model = self.args.model_tag or self.args.model
        validate_parsed_serve_args(self.args)
        self.config = AsyncEngineArgs.from_cli_args(self.args).create_engine_config()
        self.state = SimpleNamespace()
        asyncio.run(init_render_app_state(self.config, self.state, self.args))
        self.inputs = InputProcessor(self.config, self.state.online_renderer.renderer)
        cache = self.config.cache_config
        self.block_size = cache.block_size
        self.algorithm = cache.prefix_caching_hash_algo

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What enters the scheduler, and what the block pool publishes of it."""
        try:
            core, ranges = asyncio.run(self._entered(request))
        except Exception as error:
            message = re.sub(r" at 0x[0-9A-Fa-f]+", "", f"{type(error).__name__}: {error}")
            return {"refused": message[:160], "events": []}
        ids = list(core.prompt_token_ids)
        hashes, events = self._published(core)
        expect = {
            "token_runs": runs(ids),
            "n_tokens": len(ids),
            "placeholders": ranges,
            "mm_identifiers": [feature.identifier for feature in core.mm_features or []],
            "block_hashes": hashes,
        }
        return {"expect": expect, "events": events}

    async def _entered(self, request: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
        from vllm.entrypoints.openai.chat_completion.protocol import (
            ChatCompletionRequest,
        )
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import SamplingParams

        body = copy.deepcopy(dict(request))
        lora = body.pop("lora", None)
        chat = ChatCompletionRequest(model=self.args.model, max_tokens=1, **body)
        rendered = await self.state.online_renderer.render_chat(chat)
        if not isinstance(rendered, tuple):
            raise ValueError(rendered.error.message)
        _, (engine_input,) = rendered
        core = self.inputs.process_inputs(
            request_id="0",
            prompt=engine_input,
            params=SamplingParams(max_tokens=1),
            supported_tasks=("generate",),
            lora_request=LoRARequest(lora_int_id=1, **lora) if lora else None,
        )
        ranges = [
            {"offset": int(p.offset), "length": int(p.length)}
            for placed in engine_input.get("mm_placeholders", {}).values()
            for p in placed
        ]
        return core, sorted(ranges, key=lambda place: place["offset"])

    def _published(self, core: Any) -> tuple[list[str], list[str]]:
        import msgspec
        from vllm.distributed.kv_events import KVEventBatch

        request = hashed(after_hop(core), self.algorithm, self.block_size)
        hashes = [value.hex() for value in request.block_hashes]
        if not hashes:
            return hashes, []
        batch = KVEventBatch(TIME, published(request, self.block_size), 0)
        return hashes, [base64.b64encode(msgspec.msgpack.encode(batch)).decode()]


if __name__ == "__main__":
    main()
