"""Checks chat messages as vLLM's API does: plain ones at once, all others by its types.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from mmroute.engines.vllm.tools import OrderedFunction
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.request import Request

OBJECT: Final = (dict, Mapping)
"""For `isinstance`, which knows a dict at once and asks Python code about any other mapping."""
_ROLE_AND_CONTENT: Final = frozenset({"role", "content"})
# Fields that no type refuses as texts, and that leave a content with parts to vLLM's own type.
_TEXTS: Final = frozenset({"role", "content", "name", "reasoning", "task", "tool_call_id"})
_CALL: Final = frozenset({"id", "function", "type"})
_CALLED: Final = frozenset({"arguments", "name"})
_DETAILS: Final = ("auto", "low", "high", "original")
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class LateParts(list[Any]):
    """Parts or calls that the schema leaves to be checked where they are read, which is once."""

    error: InexactError | None = None


def check_chat(request: Request, known: int = 0) -> list[dict[str, Any]]:
    """Check the messages of a request but the first `known`, and the options beside them."""
    messages: object = request.messages
    if type(messages) is not list and (  # which spares a request two slow questions
        isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence)
    ):
        raise invalid(f"messages must be a list, found {json_type(messages)}")
    if request.continue_final_message and request.add_generation_prompt:
        raise invalid(
            "continue_final_message and add_generation_prompt exclude each other; "
            "set add_generation_prompt to false"
        )
    effort: object = request.reasoning_effort
    if effort is not None and effort not in _EFFORTS:
        raise invalid(
            f"reasoning_effort must be one of {', '.join(_EFFORTS)}, found {quoted(effort)}"
        )
    if request.documents is not None:
        from mmroute.engines.judging import judged
        from mmroute.engines.vllm.message_types import DOCUMENTS

        judged(DOCUMENTS.validate_python, request.documents, "documents")
    return [check_message(message, i) for i, message in enumerate(messages[known:], known)]


def check_message(message: object, index: int) -> dict[str, Any]:
    """A message as vLLM's types make it: known fields are judged and come first."""
    if _is_plain(message):
        return message
    where = f"messages[{index}]"
    given = _prepared(message, where)
    if _is_plain(given) or _has_plain_calls(given):
        return given
    from mmroute.engines.judging import judged
    from mmroute.engines.vllm.message_types import LENIENT, of_role

    judge = of_role(given.get("role")).validate_python
    checked: dict[str, Any] = judged(judge, given, where, LENIENT)
    reasoning, calls = checked.get("reasoning"), checked.get("tool_calls")
    if isinstance(reasoning, OBJECT) and reasoning.get("type") == "prompt_embeds":
        raise uncovered(f"{where}.reasoning: prompt embeddings are not covered")
    if isinstance(calls, Iterator):
        calls = checked["tool_calls"] = LateParts(judged(list, calls, f"{where}.tool_calls"))
    content, parts = checked.get("content"), given.get("content")
    if isinstance(content, Iterator):
        checked["content"] = LateParts(parts or ())
        try:
            judged(list, content, f"{where}.content")
        except InexactError as error:
            checked["content"].error = error
    elif isinstance(content, list):
        checked["content"] = parts  # the same: no type changes a part
    for call, sent in zip(calls or (), given.get("tool_calls") or (), strict=True):
        if isinstance(sent, OBJECT) and isinstance(sent.get("function"), OrderedFunction):
            call["function"] = dict(sent["function"])
    return checked


def _prepared(message: object, where: str) -> dict[str, Any]:
    """A copy of a message with what vLLM changes before its types judge it."""
    if not isinstance(message, OBJECT):
        raise invalid(f"{where} must be an object, found {json_type(message)}")
    given = dict(message)
    reasoning = given.pop("reasoning_content", None)
    if reasoning is not None and given.get("reasoning") is None:
        given["reasoning"] = reasoning
    calls = given.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        if not isinstance(calls, Iterable):
            raise invalid(f"{where}.tool_calls must be a list, found {quoted(calls)}")
        given["tool_calls"] = list(calls)
    if isinstance(given.get("author"), OBJECT) and "role" in given["author"]:
        raise uncovered(f"{where}.author: the engine takes such a message for one of another API")
    return given


def schema_skips_parts(message: Mapping[str, Any]) -> bool:
    """Whether the parts of a checked message were left to be checked where they are read."""
    return isinstance(message.get("content"), LateParts)


def uncovered(message: str) -> InexactError:
    """The error for a message that the engine may take, and whose effect is not known here."""
    return InexactError(Reason.UNSUPPORTED_FIELD, message)


def _is_plain(message: object) -> TypeGuard[dict[str, Any]]:
    """Whether vLLM's own type takes a message as it is."""
    if type(message) is not dict:
        return False
    names = message.keys()
    if names != _ROLE_AND_CONTENT and not (
        _ROLE_AND_CONTENT <= names <= _TEXTS
        and all(type(message[name]) is str for name in names if name != "content")
    ):
        return False
    content = message["content"]
    return type(message["role"]) is str and (
        type(content) is str
        or (type(content) is list and bool(content) and all(map(is_plain_part, content)))
    )


def _has_plain_calls(message: dict[str, Any]) -> bool:
    """Whether an assistant's message has well-formed calls and no parts: they are put in order."""
    calls = message.get("tool_calls")
    if type(calls) is not list or not calls or message.get("role") != "assistant":
        return False
    for name, value in message.items():
        if value is None:
            if name == "name":
                return False
        elif name != "tool_calls" and not (name in _TEXTS and type(value) is str):
            return False
    if not all(map(_is_plain_call, calls)):
        return False
    ordered = [
        {"id": call["id"], "function": {"arguments": f["arguments"], "name": f["name"]},
         "type": "function"}
        for call in calls for f in [call["function"]]
    ]  # fmt: skip
    late = message.get("content", "") is None  # only the type of the role takes it
    message["tool_calls"] = LateParts(ordered) if late else ordered
    return True


def _is_plain_call(call: object) -> bool:
    if type(call) is not dict or call.keys() != _CALL or call["type"] != "function":
        return False
    function = call["function"]
    return (
        type(call["id"]) is str
        and type(function) is dict
        and function.keys() == _CALLED
        and type(function["name"]) is type(function["arguments"]) is str
    )


def is_plain_part(part: object) -> bool:
    """Whether a part has its own type, which takes any keys that it does not know."""
    if type(part) is not dict or "prompt_cache_breakpoint" in part:
        return False
    kind = part.get("type")
    if kind == "text":
        return type(part.get("text")) is str
    if kind == "image_url":
        link = part.get("image_url")
        return (
            type(link) is dict
            and isinstance(link.get("url"), str)  # or the URL of a decoded file
            and link.get("detail", "auto") in _DETAILS
        )
    return kind == "image"
