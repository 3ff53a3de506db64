"""The HTTP requests of ``vectors/server/requests``, and the models that are asked them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from paths import VECTORS
from small_models import FAMILY_MODELS, SMALL_MODELS, Files

SERVER: Final = VECTORS / "server"
_PLACEHOLDERS: Final = {"small-llava-1.5": "<image>", "small-qwen2.5-vl": "<|image_pad|>"}
SERVED_NAMES: Final = ("served", "alias")
HARMONY_MODEL: Final = "small-gpt-oss"
START_DATE: Final = "2026-01-02"
"""What vLLM writes for today into chats of Harmony."""


@dataclass(frozen=True, slots=True)
class ServerCase:
    """One HTTP request; `body` is JSON, or bytes as they are."""

    name: str
    path: str
    body: Any = None
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})

    @property
    def raw(self) -> bytes | None:
        """The body as it is sent."""
        return self.body if isinstance(self.body, bytes | None) else json.dumps(self.body).encode()


def requests_to(model: str) -> list[ServerCase]:
    """What a model is asked: every route that is served, right and wrong."""
    if model == HARMONY_MODEL:
        return _read("harmony", "")
    return _read("every_route", _PLACEHOLDERS[model])


def _read(name: str, placeholder: str) -> list[ServerCase]:
    text = (SERVER / "requests" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [
        _case(json.loads(line.replace("{placeholder}", placeholder)))
        for line in text.split("\n")
        if line
    ]


def _case(line: dict[str, Any]) -> ServerCase:
    """Bytes are texts with how often each stands there; a character is a byte."""
    if "bytes" in line:
        line["body"] = "".join(text * count for text, count in line.pop("bytes")).encode("latin-1")
    return ServerCase(**line)


def served_files(model: str) -> Files:
    """The model's files; one of Harmony has room for its vocabulary beside its own."""
    if model != HARMONY_MODEL:
        return SMALL_MODELS[model]()
    files = FAMILY_MODELS[model]()
    return {**files, "config.json": {**files["config.json"], "vocab_size": 201088}}
