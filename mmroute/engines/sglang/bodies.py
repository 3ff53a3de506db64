"""Clients' bodies of SGLang's routes for chats and completions.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/protocol.py``, ``serving_chat.py``,
``serving_completions.py`` and ``serving_base.py`` (`_parse_model_parameter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mmroute.errors import InexactError, Reason, invalid, json_type
from mmroute.requests.request import Lora, Request

EXTRA_KEY: Final = "extra_key"
_SHARED: Final = ("cache_salt", "model")
_OF_CHATS: Final = (
    "messages", "tools", "chat_template_kwargs", "continue_final_message", "reasoning_effort",
)  # fmt: skip
_API_FIELDS: Final = ("tool_choice", "thinking", "reasoning", EXTRA_KEY)


def parse_body(body: object) -> Request:
    """See `mmroute.engine.Chats.read_body`. Fields that change no prompt are not looked at."""
    if not isinstance(body, Mapping):
        raise invalid(f"the body must be an object, found {json_type(body)}")
    given = dict(_given(body, _SHARED))
    given["api_fields"] = dict(_given(body, _API_FIELDS))
    if adapter := _adapter(body):
        given["lora"] = Lora(adapter, adapter)
    ids = body.get("input_ids")
    if "messages" not in body and "prompt" in body:
        return Request(**given, **_prompt(body["prompt"]), reads_cache=not _ranks_prompt(body))
    if ids is not None:
        return Request(**given, prompt_token_ids=ids)
    return Request(**given, **dict(_given(body, _OF_CHATS)))


def _given(body: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    return ((name, body[name]) for name in names if body.get(name) is not None)


def _adapter(body: Mapping[str, Any]) -> str | None:
    """The adapter of ``"model": "base:adapter"``, or of `lora_path`."""
    model = body.get("model")
    _, _, named = model.rpartition(":") if isinstance(model, str) else ("", "", "")
    path = body.get("lora_path")
    return named.strip() or (path if isinstance(path, str) else None) or None


def _prompt(prompt: object) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, list) and prompt and all(type(entry) is int for entry in prompt):
        return {"prompt_token_ids": prompt}
    if isinstance(prompt, list) and len(prompt) == 1:
        return _prompt(prompt[0])
    raise InexactError(
        Reason.UNSUPPORTED_FIELD,
        "prompt: must be a text, or one list of token IDs; parse a body for each of several",
    )


def _ranks_prompt(body: Mapping[str, Any]) -> bool:
    """Whether the prompt's own log probabilities are asked for, which only a computed one has."""
    return bool(body.get("echo") and body.get("logprobs") is not None)
