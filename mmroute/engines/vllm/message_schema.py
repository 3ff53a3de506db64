"""The schema of chat messages that the engine's API accepts.

vLLM validates a message against several types at once and takes the one that fits best, so a
part that would fail one type may pass with another. These are the outcomes, not the types.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py`` and
``renderers/chat_utils/types.py``, observed with pydantic 2.14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from mmroute.engines.vllm.tools import check_tool_calls, ordered_tools
from mmroute.errors import invalid, json_type, quoted
from mmroute.requests.request import Request

TEXT_FIELD: Final[Mapping[str, str]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Part types that are text -> the key that holds it."""

OTHER_MEDIA: Final = (
    "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "image_pil", "file",
)  # fmt: skip
"""Part types, and keys of parts without a type, that are not covered."""

OBJECT: Final = (dict, Mapping)
"""For `isinstance`, which knows a dict at once and asks Python code about any other mapping."""
_ITEMS: Final = frozenset({"image", "video", "audio", "video_url", "audio_url", "input_audio"})
_ROLE_AND_CONTENT: Final = frozenset({"role", "content"})
# With one of these only the assistant's own type fits, and it checks every part.
_ASSISTANT_FIELDS: Final = frozenset({"audio", "function_call", "refusal"})
# What vLLM's own message type knows, which reads each part leniently, and what the type of a role
# in the OpenAI schema does. The one that knows more of a message fits best.
_OWN_FIELDS: Final = frozenset({
    "name", "reasoning", "task", "tool_call_id", "tool_calls", "tools",
})  # fmt: skip
_TYPE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "assistant": _ASSISTANT_FIELDS | {"name"},
    "tool": frozenset({"tool_call_id"}),
    **dict.fromkeys(("developer", "system", "user"), frozenset({"name"})),
}
_DETAILS: Final = frozenset({"auto", "low", "high", "original"})
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SCHEMES: Final = ("data:", "http://", "https://", "file:")
_LONGEST_SCHEME: Final = max(map(len, _SCHEMES))


def check_chat(request: Request, known: int = 0) -> list[dict[str, Any]]:
    """Check the messages of a request and the options beside them, as the API does.

    Args:
        request: the client's request.
        known: the number of leading messages that were accepted before, and are left out.

    Raises:
        InexactError: `invalid_request`.
    """
    messages: object = request.messages
    if type(messages) is not list and (  # which spares a request two slow questions
        isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence)
    ):
        raise invalid(f"messages must be a list, found {json_type(messages)}")
    if not messages:
        raise invalid("messages must not be empty")
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
        _check_documents(request.documents)
    return [check_message(message, i) for i, message in enumerate(messages[known:], known)]


def _check_documents(documents: object) -> None:
    listed = documents if isinstance(documents, list | tuple) else [None]
    for document in listed:
        texts = (*document, *document.values()) if isinstance(document, Mapping) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise invalid(
                "documents must be a list of objects whose values are strings, found "
                f"{quoted(documents)}"
            )


def check_message(message: object, index: int) -> dict[str, Any]:
    """Check a message as the API does. The parts that later steps change are copied.

    Raises:
        InexactError: `invalid_request`.
    """
    if _is_plain(message):
        return message
    where = f"messages[{index}]"
    if not isinstance(message, OBJECT):
        raise invalid(f"{where} must be an object, found {json_type(message)}")
    checked = dict(message)
    role = checked.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}.role must be a string, found {quoted(role)}")
    if checked.keys() == _ROLE_AND_CONTENT:
        _check_content(checked, role, where)
        return checked
    reasoning = checked.pop("reasoning_content", None)
    if reasoning is not None and checked.get("reasoning") is None:
        checked["reasoning"] = reasoning
    _check_fields(checked, where)
    _check_content(checked, role, where)
    if checked.get("tools") is not None:
        checked["tools"] = ordered_tools(checked["tools"], f"{where}.tools")
    if checked.get("tool_calls") is not None:
        checked["tool_calls"] = check_tool_calls(checked["tool_calls"], where)
    return checked


def _is_plain(message: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is only a role and a text, as most are: there is nothing more to check."""
    return (
        type(message) is dict
        and message.keys() == _ROLE_AND_CONTENT
        and type(message["role"]) is str
        and type(message["content"]) is str
    )


def is_link(image_url: object) -> bool:
    """Whether the engine can fetch the value of ``image_url``."""
    if not isinstance(image_url, OBJECT) or not isinstance(image_url.get("url"), str):
        return False
    detail = image_url.get("detail", "auto")
    known = isinstance(detail, str) and detail in _DETAILS
    return known and image_url["url"][:_LONGEST_SCHEME].lower().startswith(_SCHEMES)


def _check_fields(message: Mapping[str, Any], where: str) -> None:
    for name in ("tool_call_id", "reasoning", "task"):
        if message.get(name) is not None and not isinstance(message[name], str):
            raise invalid(f"{where}.{name} must be a string, found {quoted(message[name])}")
    # The API's schema knows a name that is absent, but none that is null.
    if "name" in message and not isinstance(message["name"], str):
        raise invalid(f"{where}.name must be a string or absent, found {quoted(message['name'])}")
    if isinstance(message.get("author"), Mapping) and "role" in message["author"]:
        raise invalid(f"{where}.author: the engine takes such a message for one of another API")


def _check_content(message: dict[str, Any], role: str, where: str) -> None:
    if "content" not in message:
        return
    content = message["content"]
    if content is None:
        named = role == "function" and isinstance(message.get("name"), str)
        if role != "assistant" and not named:
            raise invalid(f"{where}.content must be a string or a list of parts, found null")
    elif isinstance(content, list):
        _check_parts(message, content, role, where)
    elif not isinstance(content, str):
        raise invalid(
            f"{where}.content must be a string or a list of parts, found {json_type(content)}"
        )


def is_read_late(message: Mapping[str, Any], parts: list[Any]) -> bool:
    """Whether the API's schema leaves the parts of a message to be checked where they are read.

    Args:
        message: the message, whose reasoning is under ``reasoning``.
        parts: its content.
    """
    role = message["role"]
    if role not in _TYPE_FIELDS or (role == "tool" and message.get("tool_call_id") is None):
        return False
    own = _OWN_FIELDS & message.keys()
    if role == "assistant" and message.get("tool_calls") == []:
        own -= {"tool_calls"}
    more = len(_TYPE_FIELDS[role] & message.keys()) - len(own)
    return more > 0 or (more == 0 and not any(map(_is_well_formed, parts)))


def _check_parts(message: Mapping[str, Any], parts: list[Any], role: str, where: str) -> None:
    if parts and not any(map(_is_well_formed, parts)) and is_read_late(message, parts):
        raise invalid(
            f"{where}.content has no part of a known form; the first is {quoted(parts[0])}"
        )
    if role == "assistant" and _ASSISTANT_FIELDS & message.keys():
        allowed = ("text", "refusal")
        if not all(_is_well_formed(part) and part.get("type") in allowed for part in parts):
            raise invalid(f"{where}.content may only hold text beside the message's other fields")


def _is_well_formed(part: object) -> bool:
    """Whether a part alone would pass the API's schema.

    One part that does makes the schema accept the whole message as it is; then each part is
    read leniently. If none does, the message is refused.
    """
    if not isinstance(part, OBJECT) or _has_breakpoint(part):
        return False
    match kind := part.get("type"):
        case "text" | "refusal" | "thinking" if isinstance(part.get(TEXT_FIELD[kind]), str):
            return kind != "thinking" or isinstance(part.get("closed", True), bool)
        case "tool_reference":
            return isinstance(part.get("name", ""), str)
        case "image_url" if isinstance(part.get("image_url"), OBJECT):
            return is_link(part["image_url"]) or isinstance(part.get("uuid"), str)
        case str() if kind in _ITEMS or kind in OTHER_MEDIA:
            return True  # media of another kind is refused where it is read, with a better reason
        case _:
            # Typed by a key of their own, these accept any other key, and a null link.
            own = [key for key in ("image_url", "audio_url", "video_url", "uuid") if key in part]
            return bool(own) and all(isinstance(part[key], str | None) for key in own)


def _has_breakpoint(part: Mapping[str, Any]) -> bool:
    """Whether a part marks the end of a cached prefix. The mark of a tool reference is ignored."""
    return "prompt_cache_breakpoint" in part and part.get("type") != "tool_reference"
