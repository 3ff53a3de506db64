"""Let vLLM's own routes read the bodies of `mmroute.forwarding`, and keep what it makes of them.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_forwarding.py MODEL... [--params ...] [--code ...]

Request classes, media reading, renderer, processor and input checks are vLLM's, up to the call
that hands a request to the scheduler, which is caught.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import EMBEDDED, engines, meta, parser_of
from vector_files import VECTORS, requests_of, runs, write_lines

_SAMPLING = {"temperature": 0.0, "max_tokens": 5}


class _Caught(Exception):  # noqa: N818 - not an error
    """What would have entered the scheduler."""


def main() -> None:
    """Write one file for each model named."""
    arguments = parser_of(__doc__, ()).parse_args()
    logging.disable(logging.WARNING)
    for model, engine, fingerprint in engines(arguments):
        lines = asyncio.run(_lines(model, engine))
        first = meta(model, model_id=f"org/{model}", fingerprint=fingerprint)
        write_lines(VECTORS / "forwarding" / f"{model}.jsonl", [first, *lines])


async def _lines(model: str, engine: Any) -> list[dict[str, Any]]:
    from mmroute import Normalizer

    source = model if model == EMBEDDED else str(engine.directory)
    normalizer = Normalizer.from_pretrained(source, model_id=f"org/{model}")
    server = _Server(engine._engine)
    lines = []
    for line in bodies(normalizer, VECTORS / "forwarding" / f"{model}.jsonl"):
        body = line["body"]
        read = server.chat if line["route"] == "vllm_chat" else server.generate
        expect = await read(json.loads(json.dumps(body)))
        if "token_ids" in body:
            body["token_ids"] = runs(body["token_ids"])
        lines.append({**line, "expect": expect})
    return lines


def bodies(normalizer: Any, vectors: Path) -> Iterator[dict[str, Any]]:
    """The requests, and for each route the body that is forwarded."""
    from mmroute import forwarding

    requests = {line["name"]: line["request"] for line in requests_of(vectors)}
    for name, request in requests.items():
        routing = normalizer.normalize(
            messages=request["messages"], cache_salt=request.get("cache_salt")
        )
        for route in ("vllm_generate", "vllm_generate_cached", "vllm_chat"):
            more = {} if route == "vllm_chat" else {"sampling_params": _SAMPLING}
            if route == "vllm_chat" and routing.placeholders:
                continue
            # What is refused here is sent all the same: vLLM must refuse, or misread, it too.
            with mock.patch("mmroute.engines.vllm.forwarding._check_ranges"):
                body = getattr(forwarding, route)(routing, request, **more)
            yield {"name": name, "route": route, "request": request, "body": body}


class _Server:
    """vLLM's routes over an engine of which only the frontend is there."""

    def __init__(self, engine: Any) -> None:
        from vllm.entrypoints.openai.models.protocol import BaseModelPath
        from vllm.entrypoints.openai.models.serving import OpenAIServingModels
        from vllm.entrypoints.scale_out.token_in_token_out.serving import ServingTokens
        from vllm.renderers.online_renderer import OnlineRenderer

        self._input_processor = engine.input_processor
        self._cache = engine.renderer.mm_processor_cache
        config = engine.input_processor.vllm_config
        client = SimpleNamespace(
            model_config=config.model_config, vllm_config=config, renderer=engine.renderer,
            input_processor=engine.input_processor, errored=False, check_admission=lambda _: None,
            generate=self._catch,
        )  # fmt: skip
        name = config.model_config.model
        models = OpenAIServingModels(client, [BaseModelPath(name=name, model_path=name)])
        self._renderer = OnlineRenderer(
            config.model_config, engine.renderer, request_logger=None, chat_template=None,
            chat_template_content_format="auto",
        )  # fmt: skip
        self._tokens = ServingTokens(
            client, models, self._renderer, request_logger=None,
            online_derenderer=SimpleNamespace(parser=None),
        )  # fmt: skip

    async def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest

        # Each body as the first one a server gets: it remembers pictures it was sent.
        self._cache.clear_cache()
        try:
            request = GenerateRequest.model_validate(body)
            answer = await self._tokens.serve_tokens(request)
        except _Caught as caught:
            return self._entered(*caught.args) | {"output_mode": request.output_mode}
        except Exception as error:
            return {"refused": _last_line(error)}
        return {"refused": answer.error.message[:160]}

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.sampling_params import SamplingParams

        request = ChatCompletionRequest.model_validate(body)
        _, (engine_input,) = await self._renderer.render_chat(request)
        return self._entered(engine_input, SamplingParams())

    def _catch(self, engine_input: Any, params: Any, *_: Any, **__: Any) -> None:
        raise _Caught(engine_input, params)

    def _entered(self, engine_input: Any, params: Any) -> dict[str, Any]:
        entered = self._input_processor.process_inputs(
            request_id="0", prompt=engine_input, params=params, supported_tasks=("generate",)
        )
        features = entered.mm_features or []
        return {
            "token_runs": runs(list(entered.prompt_token_ids)),
            "mm_hashes": [feature.identifier for feature in features],
            "ranges": [[f.mm_position.offset, f.mm_position.length] for f in features],
            "num_embeds": [int(f.mm_position.get_num_embeds()) for f in features],
            "with_pixels": [feature.data is not None for feature in features],
            "max_tokens": params.max_tokens,
            "cache_salt": entered.cache_salt,
        }


def _last_line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    return str(errors()[0]["msg"] if errors else error)[:160]


if __name__ == "__main__":
    main()
