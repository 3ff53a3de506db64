"""What vLLM refuses in a render request that makes no difference to its prompt.

First what it refuses by value, before it looks at the kinds of the fields; then the kinds of those
fields that neither the prompt nor the answer depends on.

Source: vLLM 0.33.0 ``entrypoints/openai/chat_completion/protocol.py`` and
``entrypoints/openai/completion/protocol.py`` (validators of mode "before").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mmroute.server.errors import bad_request
from mmroute.server.fields import Body, boolean, nullable, number, read, text

__all__ = ["check_early", "check_unused"]

_CONSTRAINTS: Final = ("json", "regex", "choice")
_UNUSED: Final[dict[str, Callable[[Any, str], object]]] = {
    "user": nullable(text),
    "session_id": nullable(text),
    "length_penalty": number,
    "return_tokens_as_token_ids": nullable(boolean),
    "return_weight_versions": boolean,
}
_UNUSED_IN_CHATS: Final[dict[str, Callable[[Any, str], object]]] = {
    **_UNUSED,
    "echo": boolean,
    "return_prompt_text": nullable(boolean),
    "return_token_offsets": nullable(boolean),
}


def check_early(body: Body, *, chat: bool) -> None:
    """Refuse what vLLM refuses whatever else is wrong.

    Args:
        body: the request.
        chat: whether it is a chat.

    Raises:
        ApiError: 400.
    """
    if chat and isinstance(body.get("messages", []), int | float | None):
        raise bad_request("`messages` must be a list.")
    _check_logprobs(body, chat=chat)
    if body.get("stream_options") and not body.get("stream"):
        raise bad_request(
            "Stream options can only be defined when `stream=True`.", "stream_options"
        )
    _check_response_format(body.get("response_format"))
    structured = body.get("structured_outputs")
    if isinstance(structured, Mapping):
        given = [name for name in _CONSTRAINTS if structured.get(name) is not None]
        if len(given) > 1:
            raise bad_request(
                f"You can only use one kind of constraints for structured outputs, not {given}.",
                None if chat else "structured_outputs",
            )


def check_unused(body: Body, *, chat: bool) -> None:
    """Refuse fields of another kind, though nothing here depends on them.

    Raises:
        ApiError: 400.
    """
    for name, kind in (_UNUSED_IN_CHATS if chat else _UNUSED).items():
        read(body, name, kind, None)


def _check_logprobs(body: Body, *, chat: bool) -> None:
    top = "top_logprobs" if chat else "logprobs"
    missing = not body.get("logprobs") if chat else body.get("logprobs") is None
    if body.get("logprob_token_ids") and missing:
        raise bad_request(
            "when using `logprob_token_ids`, `logprobs` must be set.", "logprob_token_ids"
        )
    for name in ("prompt_logprobs", top):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float):
            raise bad_request(f"`{name}` must be an integer.", name)
        if value < 0 and value != -1:
            raise bad_request(f"`{name}` must be a positive value or -1.", name)
    if body.get("stream") and body.get("prompt_logprobs") not in (None, 0):
        raise bad_request(
            "`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs"
        )
    wanted = body.get("top_logprobs") or 0
    if chat and (wanted == -1 or wanted > 0) and not body.get("logprobs"):
        raise bad_request(
            "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs"
        )


def _check_response_format(wanted: object) -> None:
    if not isinstance(wanted, Mapping):
        return
    kind = wanted.get("type")
    if kind == "json_schema" and wanted.get("json_schema") is None:
        raise bad_request(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
            "response_format",
        )
    tag = "format" in wanted or {"structures", "triggers"} <= wanted.keys()
    if kind == "structural_tag" and not tag:
        raise bad_request(
            "Invalid response_format structural_tag specification.", "response_format"
        )
