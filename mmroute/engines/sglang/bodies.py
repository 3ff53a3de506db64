"""Clients' bodies of SGLang's routes for chats and completions.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/protocol.py``, ``serving_chat.py``,
``serving_completions.py`` and ``serving_base.py`` (`_parse_model_parameter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mmroute.engines.judging import judged
from mmroute.engines.sglang.message_schema import EFFORTS
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.request import Lora, Request

EXTRA_KEY: Final = "extra_key"
_SHARED: Final = ("cache_salt", "model")
_OF_CHATS: Final = ("messages", "tools", "chat_template_kwargs", "reasoning_effort")
_API_FIELDS: Final = ("tool_choice", EXTRA_KEY)
_YES: Final = frozenset({"1", "true", "yes", "y", "on"})


class _Scalars(BaseModel):
    """The fields of a body that are not looked at elsewhere."""

    model_config = ConfigDict(extra="ignore")

    model: str = ""
    continue_final_message: bool = False
    extra_key: str | None = None
    lora_path: str | None = None


def parse_body(body: object) -> Request:
    """See `mmroute.engine.Chats.read_body`. Fields that change no prompt are not looked at."""
    if not isinstance(body, Mapping):
        raise invalid(f"the body must be an object, found {json_type(body)}")
    scalars = judged(_Scalars.model_validate, body, "body")
    given = dict(_given(body, _SHARED))
    given["api_fields"] = dict(_given(body, _API_FIELDS))
    if adapter := _adapter(scalars):
        given["lora"] = Lora(adapter, adapter)
    ids = body.get("input_ids")
    if "messages" not in body and "prompt" in body:
        return Request(**given, **_prompt(body["prompt"]), reads_cache=not _ranks_prompt(body))
    if ids is not None:
        return Request(**given, prompt_token_ids=ids)
    chat = {**dict(_given(body, _OF_CHATS)), **_reasoning(body)}
    return Request(**given, **chat, continue_final_message=scalars.continue_final_message)


def _given(body: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    return ((name, body[name]) for name in names if body.get(name) is not None)


def _reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a chat that the object `reasoning` sets."""
    given = body.get("reasoning")
    if not isinstance(given, Mapping):
        return {}
    effort = given.get("effort")
    if effort is None:
        effort = given.get("reasoning_effort")
    if effort is not None:
        if isinstance(effort, bool) or not isinstance(effort, str | int | float):
            raise invalid(f"reasoning: the effort must be a name, found {quoted(effort)}")
        return {"reasoning_effort": effort if effort in EFFORTS else _number(effort)}
    enabled = given.get("enabled")
    if enabled is None:
        enabled = given.get("enable", False)
    if isinstance(enabled, str):
        enabled = enabled.strip().lower() in _YES
    if not enabled or body.get("reasoning_effort") is not None:
        return {}
    kwargs = body.get("chat_template_kwargs") or {}
    if not isinstance(kwargs, Mapping):
        raise invalid(f"chat_template_kwargs must be an object, found {json_type(kwargs)}")
    return {"chat_template_kwargs": {"thinking": True, "enable_thinking": True, **kwargs}}


def _number(effort: str | float) -> float:
    try:
        return float(effort)
    except (ValueError, OverflowError):
        raise invalid(f"reasoning: {quoted(effort)} is no effort") from None


def _adapter(scalars: _Scalars) -> str | None:
    """The adapter of ``"model": "base:adapter"``, or of `lora_path`."""
    _, _, named = scalars.model.partition(":")
    return named.strip() or scalars.lora_path or None


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
