"""Compute what vLLM's Rust frontend answers to the requests of ``vectors/rust`` and ``chats``.

Run it from the repository's root in an environment of vLLM 0.33.0, whose wheel has ``vllm-rs``:

    python tools/generate_rust.py

The server runs without an engine (``vllm-rs render``), on a model directory for each file of
``vectors/rust``. Nothing in the answers is computed here.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from engine import ENGINE_VERSION, refuse_other_versions
from servers import Reply, ask, running
from vector_files import VECTORS, requests_of, runs, take_no_arguments, write_lines

FOLDER = VECTORS / "rust"
CONTEXT = 4096
REQUESTS = "requests.jsonl"


def binary() -> Path:
    """The frontend's program."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "vllm-rs"


class Frontend:
    """A running ``vllm-rs``, by its client."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def post(self, path: str, body: Any) -> Reply:
        raw = json.dumps(body).encode()
        return ask(self._client, "POST", path, raw, {"Content-Type": "application/json"})

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        """What it makes of a request: ``token_runs``, or ``refused``."""
        body = {k: v for k, v in case.items() if k not in ("id", "template", "prompt_token_ids")}
        if "prompt_token_ids" in case:
            body["prompt"] = case["prompt_token_ids"]
        api = "/v1/chat/completions/render" if "messages" in case else "/v1/completions/render"
        reply = self.post(api, body)
        if reply.status != 200:
            message = re.sub("cmpl-[0-9a-f]+", "cmpl-0", told(reply))  # it is random
            return {"refused": message[:120]}
        (rendered,) = reply.body if isinstance(reply.body, list) else [reply.body]
        return {"token_runs": runs(rendered["token_ids"])}

    def prompt(self, request: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
        """The prompt that it makes of a chat, or how its refusal begins.

        Args:
            request: the chat.
            tokenizer: the model's, to give the text of the prompt; None to give its token IDs.
        """
        answer = self.answer(request)
        if "refused" in answer:
            return answer
        ids = [token for token, count in answer["token_runs"] for _ in range(count)]
        if tokenizer is None:
            return {"ids": ids}
        return {"prompt": tokenizer.decode(ids, skip_special_tokens=False)}


def told(reply: Reply) -> str:
    """The status of a refusal, and what it says."""
    body = reply.body
    message = body.get("error", {}).get("message") if isinstance(body, dict) else body
    return f"{reply.status} {message}"


@contextmanager
def serving(files: dict[str, Any], name: str) -> Iterator[Frontend]:
    """The frontend of a small model, whose model string is the directory's name."""
    from server_vectors import START_DATE
    from small_models import write_model

    with tempfile.TemporaryDirectory() as folder:
        write_model(files, Path(folder) / name)
        command = [str(binary()), "render", name, "--max-model-len", str(CONTEXT)]
        dated = {"VLLM_SYSTEM_START_DATE": START_DATE}
        with running(command, dated, Path(folder)) as client:
            yield Frontend(client)


def main() -> None:
    """Write one file for each model, and one for the templates."""
    take_no_arguments(__doc__)
    from comparison import read_lines
    from small_models import RUST_MODELS, fingerprint
    from tokenizers import Tokenizer

    refuse_other_versions()
    for path in sorted(FOLDER.glob("*.jsonl")):
        model = read_lines(path)[0]["model"]
        files, cases = RUST_MODELS[model](), requests_of(path)
        lines = _by_template(files, model, cases) if "template" in cases[0] else []
        if not lines:
            with serving(files, model) as frontend:
                lines = [{**case, "expect": frontend.answer(case)} for case in cases]
        meta = {"model": model, "fingerprint": fingerprint(files), "vllm": ENGINE_VERSION}
        write_lines(path, [meta, *lines])

    folder = VECTORS / "chats" / "rust"
    chats = [line for each in (folder.parent, folder) for line in read_lines(each / REQUESTS)]
    for path in sorted(folder.glob("small-*.jsonl")):
        files = RUST_MODELS[path.stem]()
        by_text = "deepseek" in path.stem  # the renderers of the others give token IDs
        tokenizer = Tokenizer.from_str(json.dumps(files["tokenizer.json"])) if by_text else None
        with serving(files, path.stem) as frontend:
            lines = [
                {"id": chat["id"], "expect": frontend.prompt(chat, tokenizer)} for chat in chats
            ]
        meta = {"kind": "meta", "model": path.stem, "fingerprint": fingerprint(files),
                "vllm": ENGINE_VERSION}  # fmt: skip
        write_lines(path, [meta, *lines])


def _by_template(
    files: dict[str, Any], model: str, cases: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Answers to requests that each have a template of their own."""
    lines = []
    for case in cases:
        templated = {**files, "chat_template.json": {"chat_template": case["template"]}}
        with serving(templated, model) as frontend:
            lines.append({**case, "expect": frontend.answer(case)})
    return lines


if __name__ == "__main__":
    main()
