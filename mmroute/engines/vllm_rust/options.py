"""The options of a chat beside its messages, as vLLM's Rust frontend takes them.

Source: vLLM ``rust/src/server/src/routes/openai/chat_completions/convert.rs``,
``validate.rs``, ``rust/src/chat/src/request.rs`` (`ResolvedToolContext`),
``rust/src/chat/src/renderer/hf/mod.rs`` (`effective_template_kwargs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.engines.vllm_rust.json_values import read_json
from mmroute.engines.vllm_rust.messages import Message, read_tools
from mmroute.errors import invalid, quoted
from mmroute.requests.request import NO_KWARGS, Request

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The values of `reasoning_effort` that the API has."""


_FORMATS: Final = ("text", "json_object", "json_schema", "structural_tag")


def check_options(request: Request, messages: Sequence[Message]) -> bool:
    """Check the options of a chat."""
    if request.continue_final_message:
        if request.add_generation_prompt:
            raise invalid("continue_final_message and add_generation_prompt cannot both be true")
        if messages[-1].role != "assistant":
            raise invalid("continue_final_message needs a last message of the assistant")
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        if getattr(request, name) is not NO_KWARGS:
            raise invalid(f"vLLM's Rust frontend refuses {name}")
    if request.documents is not None and not isinstance(request.documents, list | tuple):
        raise invalid(f"documents must be a list, found {quoted(request.documents)}")
    if request.truncate_prompt_tokens is not None and any(message.images for message in messages):
        raise invalid("truncate_prompt_tokens is refused with images")
    _check_format(request.api_fields.get("response_format"))
    effort = request.reasoning_effort
    if effort is not None and effort not in EFFORTS:
        raise invalid(
            f"reasoning_effort must be one of {', '.join(EFFORTS)}, found {quoted(effort)}"
        )
    own = tools_of_request(request)
    tools = [*own, *(tool for message in messages for tool in message.tools)]
    choice = request.api_fields.get("tool_choice")
    _check_choice(choice, [tool["function"]["name"] for tool in tools])
    return bool(tools) and choice != "none"


def hides_tools(request: Request, *, earlier: bool) -> bool:
    """Whether a chat is rendered without tools: that of 0.32.0 does so if none may be called."""
    return earlier and request.api_fields.get("tool_choice") == "none"


def tools_of_request(request: Request) -> list[dict[str, Any]]:
    """The tools of a request, as templates get them."""
    if request.tools is None:
        return []
    tools = read_tools(request.tools, "tools")
    if not tools:
        raise invalid("tools must not be empty: leave the field out")
    return tools


def template_kwargs(request: Request, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The variables for a template. An effort also asks for thinking, or against it."""
    given = request.chat_template_kwargs
    kwargs: dict[str, Any] = read_json({**defaults, **given}, "chat_template_kwargs", 1)
    if request.reasoning_effort is not None:
        kwargs["reasoning_effort"] = request.reasoning_effort
        if "enable_thinking" not in given:
            kwargs["enable_thinking"] = request.reasoning_effort != "none"
    return kwargs


def _check_format(given: Any) -> None:
    """Source: vLLM ``rust/src/server/src/routes/openai/utils/structured_outputs.rs``."""
    kind = given.get("type") if isinstance(given, Mapping) else given
    if given is not None and (given is kind or kind not in _FORMATS):
        raise invalid(f"response_format must have a type it knows, found {quoted(given)}")
    if kind == "json_schema":
        schema = given.get(kind)
        if not isinstance(schema, Mapping) or not isinstance(schema.get("name"), str):
            raise invalid(f"response_format.json_schema must have a name, found {quoted(schema)}")
        if not {"schema", "json_schema"} & schema.keys():
            raise invalid("response_format.json_schema must have a schema")


def _check_choice(choice: Any, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise invalid(f"two tools have one name: {', '.join(sorted(names))}")
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if choice.get("type") != "function" or name not in names:
            raise invalid(f"tool_choice names no tool of the request: {quoted(choice)}")
    elif choice not in (None, "none", "auto", "required"):
        raise invalid(f"tool_choice must be none, auto or required, found {quoted(choice)}")
    elif choice in ("auto", "required") and not names:
        raise invalid(f"tool_choice is {choice}, and there are no tools")
