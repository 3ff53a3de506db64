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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import (
    EMBEDDED,
    ENGINE_VERSION,
    after_hop,
    meta,
    parser_of,
    refuse_other_versions,
    write_files,
)
from vector_files import VECTORS, runs, write_lines

TIME = 1.5
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}{{ mood }}"
)
TELLING = (
    "--block-size 32 --served-model-name first second "
    """--mm-processor-kwargs '{"max_pixels": 3136}' """
    """--limit-mm-per-prompt '{"image": 2}' --max-model-len 4096 --max-num-batched-tokens 1024 """
    "--prefix-caching-hash-algo sha256_cbor --enable-lora --enable-tower-connector-lora"
)
ALL_MODELS: Mapping[str, Mapping[str, str]] = {
    "small-qwen2.5-vl": {
        "defaults": "",
        "model string": "",
        "served names": "--served-model-name first second",
        "chat template": f"--chat-template {shlex.quote(TEMPLATE)}",
        "content format": "--chat-template-content-format string",
        "template arguments": f"--chat-template {shlex.quote(TEMPLATE)} "
        """--default-chat-template-kwargs '{"mood": "gladly"}'""",
        "processor arguments": """--mm-processor-kwargs '{"max_pixels": 3136}'""",
        "processor arguments of requests": """--mm-processor-kwargs '{"max_pixels": 3136}' """
        "--trust-request-mm-kwargs",
        "media arguments": f"--chat-template {shlex.quote(TEMPLATE)} "
        "--trust-request-mm-kwargs --media-io-kwargs.video.num_frames 4 "
        "--media-io-kwargs.image.rgba_background_color '[1, 2, 255]'",
        "limits": """--limit-mm-per-prompt '{"image": 1}'""",
        "no media": "--language-model-only",
        "longest context": "--max-model-len 48",
        "batched tokens": "--max-num-batched-tokens 1024 --max-num-seqs 8 "
        "--trust-request-mm-kwargs",
        "more batched tokens": "--max-num-batched-tokens 4096 --trust-request-mm-kwargs",
        "block size": "--block-size 32",
        "hash algorithm": "--prefix-caching-hash-algo sha256_cbor",
        "seed": "PYTHONHASHSEED=7 SERVE ",
        "algorithm and seed": "PYTHONHASHSEED=42 SERVE --prefix-caching-hash-algo xxhash",
        "identity algorithm": "--mm-hasher-algorithm sha256",
        "adapters": "--enable-lora --lora-modules sql=/adapters/sql",
        "adapters in towers": "--enable-lora --enable-tower-connector-lora "
        "--lora-modules sql=/adapters/sql",
        "image pixels": "VLLM_MAX_IMAGE_PIXELS=5000 SERVE ",
        "no processor cache": "--mm-processor-cache-gb 0",
        "tokenizer mode": "--tokenizer-mode hf",
    },
    EMBEDDED: {
        "tokenizer mode": "--tokenizer-mode mistral --config-format mistral --block-size 16",
    },
}


def main() -> None:
    """Write the files."""
    arguments = parser_of(__doc__, ALL_MODELS).parse_args()
    refuse_other_versions()
    os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")
    with tempfile.TemporaryDirectory() as directory:
        _write_answers(Path(directory))
        for model in arguments.models:
            fingerprint = write_files(model, Path(directory) / model, arguments.params)
            os.chdir(directory)  # a relative path is the model string of an engine
            lines = [meta(model, fingerprint=fingerprint)]
            for setting, options in ALL_MODELS[model].items():
                environment, _, rest = options.rpartition("SERVE ")
                named = "./" if setting == "model string" else ""
                line = f"{environment}vllm serve {named}{model} {rest}".strip()
                lines += _engine(setting, line)
            write_lines(VECTORS / "settings" / f"{model}.jsonl", lines)


def _write_answers(directory: Path) -> None:
    """What a server that was started with some settings says of itself, in parts."""
    model = "small-qwen2.5-vl"
    write_files(model, directory / model)
    os.chdir(directory)
    served = Served([model, *shlex.split(TELLING)])
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
    text = json.dumps({"arguments": f"vllm serve {model} {TELLING}", "answers": answers}, indent=1)
    (VECTORS / "server" / "running_vllm.json").write_text(text + "\n", encoding="utf-8")


def _engine(setting: str, line: str) -> Iterator[dict[str, Any]]:
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
        for name, request in cases(setting):
            yield {"id": f"{setting}: {name}", "setting": setting, "arguments": line,
                   "request": request, **engine.answer(request)}  # fmt: skip
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class Served:
    """One engine of vLLM, started as ``vllm serve`` starts it, up to the block pool."""

    def __init__(self, words: list[str]) -> None:
        import vllm.v1.core.kv_cache_utils as kv
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.common.cli_args import (
            make_arg_parser,
            validate_parsed_serve_args,
        )
        from vllm.entrypoints.launchers.render.app_state import init_render_app_state
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.utils.hashing import get_hash_fn_by_name
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
        function = get_hash_fn_by_name(cache.prefix_caching_hash_algo)
        kv.init_none_hash(function)
        self.hasher = kv.get_request_block_hasher(self.block_size, function)

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
        from vllm.v1.core.block_pool import BlockPool
        from vllm.v1.request import Request

        request = Request.from_engine_core_request(after_hop(core), self.hasher)
        hashes = [value.hex() for value in request.block_hashes]
        if not hashes:
            return hashes, []
        pool = BlockPool(len(hashes) + 2, True, self.block_size, enable_kv_cache_events=True)
        blocks = pool.get_new_blocks(len(hashes))
        pool.cache_full_blocks(request, blocks, 0, len(hashes), self.block_size, 0)
        batch = KVEventBatch(TIME, pool.take_events(), 0)
        return hashes, [base64.b64encode(msgspec.msgpack.encode(batch)).decode()]


def cases(setting: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests, of which most settings change one."""
    from mmroute.lab.parity.oracles.pictures import data_url

    words = "what is in this picture and the other one ? " * 3

    def chat(*parts: Any, **fields: Any) -> dict[str, Any]:
        content = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else list(parts)
        return {"messages": [{"role": "user", "content": content}], **fields}

    def picture(width: int, height: int) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(width, height)}}

    text = {"type": "text", "text": words}
    yield "text", chat(words)
    yield "salted text", chat(words, cache_salt="tenant")
    yield "image", chat(picture(96, 64), text)
    yield "two images", chat(picture(64, 64), text, picture(40, 56))
    yield "a question", chat("what")
    if setting == "defaults":
        yield from _answers_of_parts()
    if setting == "template arguments":
        yield "own arguments", chat(words, chat_template_kwargs={"mood": "sadly"})
    if setting == "processor arguments of requests":
        own = {"max_pixels": 6272}
        yield "own arguments", chat(picture(96, 64), text, mm_processor_kwargs=own)
        on_blue = {"image_mode": "RGB", "rgba_background_color": [1, 2, 255]}
        for name, reading in ("on blue", on_blue), ("as RGB", {"image_mode": "RGB"}):
            yield name, chat(_transparent(), text, media_io_kwargs={"image": reading})
        yield "kept whole", chat(picture(40, 56), text, truncate_prompt_tokens=-1)
    if setting.endswith("batched tokens"):
        large = {"min_pixels": 28 * 28 * 2000, "max_pixels": 28 * 28 * 2500}
        yield "large image", chat(picture(96, 64), text, mm_processor_kwargs=large)
    if setting.startswith("adapters"):
        lora = {"lora_name": "sql", "lora_path": "/adapters/sql"}
        yield "adapter", chat(picture(96, 64), text, lora=lora)
    if setting == "media arguments":
        yield "transparent", chat(_transparent(), text)
        on_green = {"image": {"image_mode": "RGB", "rgba_background_color": [0, 9, 0]}}
        yield "own arguments", chat(_transparent(), text, media_io_kwargs=on_green)
        yield "video", chat({"type": "video_url", "video_url": {"url": _video()}}, text)


def _answers_of_parts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Parts of a form that is accepted beside some fields alone."""
    parts = [{"type": "output_text", "text": "a cat"}, "in a picture"]
    for name in ("reasoning", "tool_call_id", "task"):
        answer = {"role": "assistant", "content": parts, name: "a"}
        yield f"parts beside {name}", {"messages": [answer, {"role": "user", "content": "what"}]}


def _transparent() -> dict[str, Any]:
    """A picture that vLLM has to convert, of those that the tests of headers read."""
    from image_vectors import file_urls

    return {"type": "image_url", "image_url": {"url": file_urls()["png-rgba"]}}


def _video() -> str:
    """Thirty frames of 32x16 pixels, of those that the tests of headers read."""
    from media_files import media_files

    data = media_files("videos")["sound-shorter"].data
    return "data:video/mp4;base64," + base64.b64encode(data).decode()


if __name__ == "__main__":
    main()
