"""What a body is checked for before its fields are: defaults and refusals that decide prompts.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/openai/completion/protocol.py`` and ``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pydantic import model_validator

from mmroute.engines.vllm.bodies.errors import refused, require
from mmroute.errors import InexactError
from mmroute.requests.checks import check_cache_salt

_Body: TypeAlias = dict[str, Any]

_MOST_PROMPTS: Final = 1024  # each costs an answer, so this bounds what a body may cost as well
_COMPLETION_TOKENS: Final = 16


def before_fields(check: Callable[[_Body], None]) -> Any:
    """A validator for a class of requests, which calls a check on the body before its fields."""

    def checked(cls: Any, body: Any) -> Any:  # noqa: ARG001 - by its name pydantic knows the first
        if isinstance(body, dict):
            check(body)
        return body

    return model_validator(mode="before")(checked)


def check_chat(body: _Body) -> None:
    """Check a chat, and fill in the defaults that depend on other fields."""
    check_generation_prompt(body)
    tools = body.get("tools")
    require(tools != [], "`tools` must not be an empty array: leave it out", "tools")
    if tools:
        body.setdefault("tool_choice", "auto")
    _check_rest(body)


def check_completion(body: _Body) -> None:
    """Check a completion, and fill in the defaults that depend on other fields."""
    prompt, embeds = body.get("prompt"), body.get("prompt_embeds")
    for name, value in (("prompt", prompt), ("prompt_embeds", embeds)):
        if isinstance(value, list) and value and not isinstance(value[0], int):
            require(
                len(value) <= _MOST_PROMPTS,
                f"{name} list length {len(value)} exceeds the maximum allowed count of "
                f"{_MOST_PROMPTS}.",
                name,
            )
    require(
        prompt not in (None, "") or embeds not in (None, []),
        "Either prompt or prompt_embeds must be provided and non-empty.",
        "prompt",
    )
    if body.get("max_tokens") is None:
        body["max_tokens"] = _COMPLETION_TOKENS
    _check_rest(body)


def check_responses(body: _Body) -> None:
    """Check a request of the Responses API, and fill in defaults that depend on other fields."""
    if not body.get("tools") and body.get("tool_choice", "auto") == "auto":
        body["tool_choice"] = "none"
    require(body.get("prompt") is None, "prompt template is not supported", "prompt")
    if body.get("input") == {}:  # vLLM makes a list of whatever has items
        body["input"] = []
    _check_rest(body)


def use_mm_kwargs_alias(body: _Body) -> None:
    """Read the older name of `mm_payload`."""
    if body.get("return_mm_kwargs") is False:
        body.setdefault("mm_payload", "none")


def check_generation_prompt(body: _Body) -> None:
    """Refuse two options of a chat that exclude each other."""
    require(
        not (body.get("continue_final_message") and body.get("add_generation_prompt")),
        "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
    )


def _check_rest(body: _Body) -> None:
    try:
        check_cache_salt(body.get("cache_salt"))
    except InexactError as inexact:
        raise refused(str(inexact), "cache_salt") from None
    use_mm_kwargs_alias(body)
