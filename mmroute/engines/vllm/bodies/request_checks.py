"""The checks of a render request that vLLM makes before it checks the types of the fields.

Each function is one or more of vLLM's validators of mode "before". They are called in the order in
which pydantic runs them, the reverse of that in vLLM's files. They raise an `BodyError` with status
400.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/openai/completion/protocol.py`` and ``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pydantic import model_validator

from mmroute.engines.vllm.bodies.errors import refused, require
from mmroute.errors import InexactError, quoted
from mmroute.requests.request import check_cache_salt

_Body: TypeAlias = dict[str, Any]

_CONSTRAINTS: Final = ("json", "regex", "choice")
_TOOL_CHOICES: Final = ("auto", "required")
_NO_SUCH_TOOL: Final = "Tool choice 'function' not found in 'tools' parameter."
_MOST_PROMPTS: Final = 1024
_COMPLETION_TOKENS: Final = 16
# The fields that these checks read; chats without any of them need none but that of `messages`.
_LOOKED_AT: Final = frozenset({
    "add_generation_prompt", "continue_final_message", "tools", "tool_choice",
    "structured_outputs", "logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids",
    "use_beam_search", "stream", "stream_options", "response_format", "cache_salt",
    "return_mm_kwargs",
})  # fmt: skip


def before_fields(check: Callable[[_Body], None]) -> Any:
    """A validator for a class of requests, which calls a check on the body before its fields."""

    def checked(cls: Any, body: Any) -> Any:  # noqa: ARG001 - by its name pydantic knows the first
        if isinstance(body, dict):
            check(body)
        return body

    return model_validator(mode="before")(checked)


def check_chat(body: _Body) -> None:
    """Check a chat, and fill in the defaults that depend on other fields."""
    listed = isinstance(body.get("messages", []), list | str | dict)
    require(listed, "`messages` must be a list.")
    if _LOOKED_AT.isdisjoint(body):  # as most chats are
        return
    check_generation_prompt(body)
    _check_tools(body)
    constraints = _constraints(body, None)
    free = body.get("tool_choice", "none") in ("none", *_TOOL_CHOICES)
    require(
        free or not constraints,
        "You can only either use constraints for structured outputs or tools, not both.",
    )
    _check_logprobs(body, "top_logprobs", unset=not body.get("logprobs"))
    top = body.get("top_logprobs") or 0
    require(
        not (top == -1 or top > 0) or body.get("logprobs"),
        "when using `top_logprobs`, `logprobs` must be set to true.",
        "top_logprobs",
    )
    _check_stream_options(body)
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
    _check_stream_options(body)
    _check_echo(body)
    _check_logprobs(body, "logprobs", unset=body.get("logprobs") is None)
    _constraints(body, "structured_outputs")
    if body.get("max_tokens") is None:
        body["max_tokens"] = _COMPLETION_TOKENS
    _check_rest(body)


def check_responses(body: _Body) -> None:
    """Check a request of the Responses API, and fill in defaults that depend on other fields."""
    tools, choice = body.get("tools"), body.get("tool_choice", "auto")
    require(isinstance(tools, list | dict | str | None), "`tools` must be a list.")
    named = isinstance(choice, dict) and choice.get("type") in ("function", "custom")
    if tools and named:
        _check_named_of_responses(choice.get("name"), tools)
    elif not tools:
        require(
            choice != "required",
            "Tool choice 'required' must be specified with 'tools' parameter.",
            "tool_choice",
        )
        require(not named, _NO_SUCH_TOOL, "tool_choice")
        if choice == "auto":
            body["tool_choice"] = "none"
    for tool in _objects(tools):
        shape = tool.get("format")
        of_grammar = isinstance(shape, dict) and shape.get("type") == "grammar"
        require(
            not of_grammar or tool.get("type") != "custom",
            "Custom tools with a grammar format are not supported; only free-form text custom "
            "tools are accepted.",
            "tools",
        )
    require(body.get("prompt") is None, "prompt template is not supported", "prompt")
    require(
        not body.get("background") or body.get("store", True),
        "background can only be used when `store` is true",
        "background",
    )
    _check_cache_salt(body)
    if body.get("input") == {}:  # vLLM makes a list of whatever has items
        body["input"] = []
    use_mm_kwargs_alias(body)


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
    _check_response_format(body.get("response_format"))
    _check_cache_salt(body)
    use_mm_kwargs_alias(body)


def _check_cache_salt(body: _Body) -> None:
    try:
        check_cache_salt(body.get("cache_salt"))
    except InexactError as inexact:
        raise refused(str(inexact), "cache_salt") from None


def _check_tools(body: _Body) -> None:
    tools = body.get("tools")
    require(
        tools != [],
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely.",
        "tools",
    )
    if tools:
        body.setdefault("tool_choice", "auto")
    choice = body.get("tool_choice")
    if choice is None or choice == "none":
        return
    require(tools is not None, "When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        _check_named_tool(choice.get("function"), tools)
        return
    require(
        choice in _TOOL_CHOICES,
        f"Invalid value for `tool_choice`: {quoted(choice)}! Only named tools, "
        '"none", "auto" or "required" are supported.',
        "tool_choice",
    )


def _check_named_tool(function: object, tools: object) -> None:
    usage = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
    if not isinstance(function, dict):
        what = f"Invalid value for `function`: `{quoted(function)}` in `tool_choice`!"
        raise refused(f"{what} {usage}", "tool_choice.function")
    name = function.get("name")
    require(
        name and isinstance(name, str),
        f"Invalid `name` in `function`: `{quoted(name)}` in `tool_choice`! {usage}",
        "tool_choice.function.name",
    )
    functions = _objects([tool.get("function") for tool in _objects(tools)])
    require(
        name in [known.get("name") for known in functions],
        "The tool specified in `tool_choice` does not match any of the specified `tools`",
        "tool_choice",
    )


def _check_named_of_responses(name: object, tools: object) -> None:
    """A tool of a namespace may be named without the namespace if no other has its name."""
    known, inner = list[object](), list[object]()
    for tool in _objects(tools):
        if tool.get("type") == "namespace":
            names = [listed.get("name") for listed in _objects(tool.get("tools"))]
            inner += names
            known += [f"{tool.get('name')}__{one}" for one in names]
        else:
            known.append(tool.get("name"))
    named = name and (name in known or inner.count(name) == 1)
    require(named, _NO_SUCH_TOOL, "tool_choice")


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list. The schema refuses any other value later."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _constraints(body: _Body, param: str | None) -> int:
    structured = body.get("structured_outputs")
    constraints = structured if isinstance(structured, dict) else {}
    count = sum(constraints.get(name) is not None for name in _CONSTRAINTS)
    require(
        count <= 1,
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice').",
        param,
    )
    return count


def _check_logprobs(body: _Body, top: str, *, unset: bool) -> None:
    name = "logprob_token_ids"
    token_ids = body.get(name)
    beam = token_ids and body.get("use_beam_search")
    require(not beam, f"`{name}` is not supported with beam search.", name)
    how = " to true" if top == "top_logprobs" else ""
    require(not (token_ids and unset), f"when using `{name}`, `logprobs` must be set{how}.", name)
    for name in ("prompt_logprobs", top):
        value = body.get(name)
        number = isinstance(value, int | float | None)
        require(number, f"`{name}` must be an integer.", name, value)
    of_prompt = body.get("prompt_logprobs") or 0
    require(
        not (body.get("stream") and (of_prompt > 0 or of_prompt == -1)),
        "`prompt_logprobs` are not available when `stream=True`.",
        "prompt_logprobs",
    )
    for name in ("prompt_logprobs", top):
        value = body.get(name) or 0
        negative = value < 0 and value != -1
        require(not negative, f"`{name}` must be a positive value or -1.", name, value)


def _check_echo(body: _Body) -> None:
    if not body.get("echo"):
        return
    beam = body.get("use_beam_search") and body.get("logprobs") is not None
    require(not beam, "`echo` with `logprobs` is not supported with beam search.", "echo")
    require(
        not body.get("logprob_token_ids") or body.get("max_tokens") != 0,
        "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no "
        "output tokens are generated.",
        "logprob_token_ids",
    )


def _check_stream_options(body: _Body) -> None:
    require(
        body.get("stream") or not body.get("stream_options"),
        "Stream options can only be defined when `stream=True`.",
        "stream_options",
    )


def _check_response_format(response_format: object) -> None:
    if not isinstance(response_format, dict):
        return
    kind = response_format.get("type")
    require(
        kind != "json_schema" or response_format.get("json_schema") is not None,
        "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        "response_format",
    )
    tag = "format" in response_format or {"structures", "triggers"} <= response_format.keys()
    require(
        kind != "structural_tag" or tag,
        "Invalid response_format structural_tag specification.",
        "response_format",
    )
