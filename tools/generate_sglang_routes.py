"""Compute SGLang's answers to bodies of its routes with its own code.

Run it where SGLang is installed (a CPU is enough), from the repository's root, once for each file:

    python tools/generate_sglang_routes.py MODEL

The requests are those of the file, ``tests/core/conformance/vectors/server/sglang/MODEL.jsonl``. A
body goes through the parser of JSON, the schema and the handler of its route as they are; what a
handler would hand to the scheduler is taken from it, and tokenized by SGLang's tokenizer manager.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from generate_sglang import VERSION, Engine
from vector_files import VECTORS, requests_of, runs, write_lines

FOLDER = VECTORS / "server" / "sglang"


class HandedOn(BaseException):
    """What a handler hands on; it passes the handlers of exceptions by."""

    def __init__(self, request: Any) -> None:
        self.request = request


async def _hand_on(request: Any, *_: Any) -> NoReturn:
    raise HandedOn(request)


class Routes:
    """The routes of one model."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        from sglang.srt.entrypoints.anthropic import protocol as anthropic
        from sglang.srt.entrypoints.anthropic.serving import AnthropicServing
        from sglang.srt.entrypoints.openai import protocol as openai
        from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses
        from sglang.srt.entrypoints.openai.serving_tokenize import (
            OpenAIServingDetokenize,
            OpenAIServingTokenize,
        )

        self._engine = Engine(directory, options)
        manager, chats = self._engine.manager, self._engine.chats
        manager.served_model_name = "m"
        manager.request_logger = SimpleNamespace(log_requests=False)
        chats._handle_non_streaming_request = chats._handle_streaming_request = _hand_on
        responses = OpenAIServingResponses(manager, chats.template_manager)
        responses._generate_with_builtin_tools = self._built_in
        messages = AnthropicServing(chats)
        self._routes = {
            "/v1/chat/completions": (openai.ChatCompletionRequest, chats.handle_request),
            "/v1/responses": (openai.ResponsesRequest, responses.create_responses),
            "/v1/messages": (anthropic.AnthropicMessagesRequest, messages.handle_messages),
            "/v1/messages/count_tokens": (
                anthropic.AnthropicCountTokensRequest, messages.handle_count_tokens,
            ),
            "/tokenize": (
                openai.TokenizeRequest,
                OpenAIServingTokenize(manager, chats.template_manager).handle_request,
            ),
            "/detokenize": (
                openai.DetokenizeRequest, OpenAIServingDetokenize(manager).handle_request,
            ),
        }  # fmt: skip

    @staticmethod
    def _built_in(_id: str, _prompt: Any, request: Any, *_: Any, **__: Any) -> NoReturn:
        raise HandedOn(request)

    def answer(self, route: str, body: Any) -> dict[str, Any]:
        """What the route answers, or the token IDs that it hands on."""
        import orjson
        from pydantic import TypeAdapter

        schema, handler = self._routes[route]
        try:
            read = TypeAdapter(schema).validate_python(orjson.loads(json.dumps(body)))
            given = self._engine.run(handler(read, None))
        except HandedOn as handed_on:
            return self._tokenized(handed_on.request)
        except Exception as error:
            return _refused(error)
        if hasattr(given, "body"):
            status, answer = given.status_code, json.loads(given.body)
        else:
            answer = given.model_dump()
            status = answer.get("code", 200)
        return {"answer": answer} if status == 200 else {"refused": str(answer)[:160]}

    def _tokenized(self, request: Any) -> dict[str, Any]:
        try:
            request.normalize_batch_and_arguments()
            ids, _ = self._engine.run(self._engine.manager._tokenize_one_request(request))
        except Exception as error:
            return _refused(error)
        return {"token_runs": runs(map(int, ids))}


def _refused(error: Exception) -> dict[str, Any]:
    return {"refused": f"{type(error).__name__}: {error}".partition("\n")[0][:160]}


def main() -> None:
    """Write the file of one model."""
    from sglang_files import files_of
    from small_models import fingerprint, write_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(path.stem for path in FOLDER.glob("*.jsonl")))
    path = FOLDER / f"{parser.parse_args().model}.jsonl"
    old = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    files, options = files_of(old["model"]), old.get("options", {})
    with tempfile.TemporaryDirectory() as directory:
        routes = Routes(write_model(files, Path(directory) / old["model"]), options)
        meta = {
            "kind": "meta", "model": old["model"], "options": options, "backend": "sglang",
            "backend_version": VERSION, "transformers": version("transformers"),
            "tokenizers": version("tokenizers"), "fingerprint": fingerprint(files),
        }  # fmt: skip
        lines = [
            {**case, "expect": routes.answer(case["route"], case["body"])}
            for case in requests_of(path)
        ]
    write_lines(path, [meta, *lines])


if __name__ == "__main__":
    main()
