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
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
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
_TEXT_OR_NONE: Final = (str, type(None))  # a union would be made at each call
_ITEMS: Final = frozenset({"image", "video", "audio", "video_url", "audio_url", "input_audio"})
_ROLE_AND_CONTENT: Final = frozenset({"role", "content"})
_TYPE_AND_TEXT: Final = frozenset({"type", "text"})
_ASSISTANT_FIELDS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "audio": ("id",), "function_call": ("arguments", "name"), "refusal": None,
}  # fmt: skip
"""Fields of an assistant's message -> the texts in the object that they hold; None for a text."""
_CALL_FIELDS: Final = 5  # of a tool call and its function
# The types of parts that the type of a role takes.
_READ_LATE: Final[Mapping[str, tuple[str, ...]]] = {
    "assistant": ("text", "refusal"), "user": ("text", "image_url", "input_audio", "file"),
}  # fmt: skip
# What vLLM's own message type knows, which reads each part leniently, and what the type of a role
# in the OpenAI schema does. The one that knows more of a message fits best.
_OWN_FIELDS: Final = frozenset({
    "name", "reasoning", "task", "tool_call_id", "tool_calls", "tools",
})  # fmt: skip
_TYPE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "assistant": frozenset({*_ASSISTANT_FIELDS, "name"}),
    "tool": frozenset({"tool_call_id"}),
    **dict.fromkeys(("developer", "system", "user"), frozenset({"name"})),
}
_LINK: Final = frozenset({"url", "detail"})
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
        InexactError: `invalid_request`, `unsupported_field`.
    """
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
        InexactError: `invalid_request`, `unsupported_field`.
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
    _check_content(checked, role, where)
    if checked.get("tools") is not None:
        ordered = ordered_tools(checked["tools"])
        if not ordered:
            _check_by_role(checked, "tools", "a list of tool definitions", where)
        checked["tools"] = ordered or checked["tools"]
    _check_fields(checked, where)
    if checked.get("tool_calls") is not None:
        checked["tool_calls"] = check_tool_calls(checked["tool_calls"], role, where)
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


def _fits_role(message: Mapping[str, Any], role: str) -> bool:
    """Whether the type that the OpenAI schema has for the role takes the message.

    It keeps fields that it does not know as they are, where vLLM's own type checks them.
    """
    match role:
        case "assistant":
            return True
        case "tool":
            return "content" in message and isinstance(message.get("tool_call_id"), str)
        case "function":
            text = isinstance(message.get("content", ()), str | None)
            return text and isinstance(message.get("name"), str)
    return role in _TYPE_FIELDS and "content" in message


def _check_by_role(message: Mapping[str, Any], name: str, wanted: str, where: str) -> None:
    """Check a message of which vLLM's own type refuses a field.

    Raises:
        InexactError: `invalid_request`: the type of its role refuses it as well.
            `unsupported_field`: that type reads its parts, by rules that are not covered.
    """
    role = message["role"]
    named = name == "name" and role != "tool"  # which all other types check
    if named or not _fits_role(message, role):
        raise invalid(f"{where}.{name} must be {wanted}, found {quoted(message[name])}")
    if not isinstance(message.get("content"), str | None):
        raise uncovered(f"{where}.{name} is not {wanted}, beside a content that is no text")


def uncovered(message: str) -> InexactError:
    """The error for a message that the engine may take, and whose effect is not known here."""
    return InexactError(Reason.UNSUPPORTED_FIELD, message)


def _check_fields(message: Mapping[str, Any], where: str) -> None:
    # The API's schema knows a name that is absent, but none that is null.
    if not isinstance(message.get("name", ""), str):
        _check_by_role(message, "name", "a string or absent", where)
    for name in ("tool_call_id", "reasoning", "task"):
        value = message.get(name)
        if isinstance(value, _TEXT_OR_NONE):
            continue
        _check_by_role(message, name, "a string", where)
        if isinstance(value, OBJECT) and value.get("type") == "prompt_embeds":
            raise uncovered(f"{where}.{name}: prompt embeddings are not covered")
    if (
        "author" in message
        and isinstance(message["author"], OBJECT)
        and "role" in message["author"]
    ):
        raise uncovered(f"{where}.author: the engine takes such a message for one of another API")


def _check_content(message: dict[str, Any], role: str, where: str) -> None:
    content = message.get("content", "")
    if isinstance(content, (str, list)):
        return
    if content is None and (role == "assistant" or isinstance(message.get("name"), str)):
        if role == "assistant":
            _check_assistant(message, where)
            return
        if role == "function":
            return
    if isinstance(content, OBJECT) and _fits_role(message, role) and role != "function":
        message["content"] = content or []
        return
    raise invalid(
        f"{where}.content must be a string or a list of parts, found {json_type(content)}"
    )


def _check_assistant(message: Mapping[str, Any], where: str) -> None:
    """Check the fields of an assistant's message without content, which one type alone takes."""
    if message.get("tool_calls", ()) is None:
        raise invalid(f"{where}.tool_calls must be absent or a list beside a content of null")
    wrong = _wrong_field(message)
    if wrong is not None:
        raise invalid(f"{where}.{wrong}: found {quoted(message[wrong])} beside a content of null")


def _wrong_field(message: Mapping[str, Any]) -> str | None:
    """The name of a field that the assistant's type refuses; None if there is none."""
    for name in _ASSISTANT_FIELDS.keys() & message.keys():
        value, fields = message[name], _ASSISTANT_FIELDS[name]
        if value is None or (fields is None and isinstance(value, str)):
            continue
        if not isinstance(value, OBJECT) or fields is None:
            return name
        if not all(isinstance(value.get(field), str) for field in fields):
            return name
    return None


def is_read_late(message: Mapping[str, Any], parts: Sequence[Any]) -> bool:
    """Whether the API's schema leaves the parts of a message to be checked where they are read.

    The type of the role does. It is taken if vLLM's own type knows no more of the message.

    Args:
        message: the message, whose reasoning is under ``reasoning``.
        parts: its content.
    """
    role, calls = message["role"], message.get("tool_calls", ())
    if role not in _TYPE_FIELDS or (role == "tool" and message.get("tool_call_id") is None):
        return False
    own, of_role = len(_OWN_FIELDS & message.keys()), len(_TYPE_FIELDS[role] & message.keys())
    if role == "assistant":
        if calls is None or _wrong_field(message) is not None:
            return False
        own -= "tool_calls" in message  # which both types know
        held = [fields or () for name, fields in _ASSISTANT_FIELDS.items() if message.get(name)]
        of_role += sum(map(len, held))
    if any(not isinstance(part, (str, *OBJECT)) for part in parts):
        return True
    own += _CALL_FIELDS * len(calls or ()) + sum(map(_num_fields, parts))
    return of_role >= own or any(call.get("type") == "custom" for call in calls or ())


def _num_fields(part: Any) -> int:
    """The number of fields that vLLM's own type knows of a part: of a text or an image."""
    if not _is_well_formed(part):
        return 0
    kind, link = part.get("type"), part.get("image_url")
    if kind == "image_url" and isinstance(link, OBJECT):
        return 2 + len(_LINK & link.keys())
    return 1 if kind is None else 2 + ("closed" in part)


def check_parts(message: Mapping[str, Any], parts: object, where: str) -> None:
    """Check the parts of a message as a whole, as vLLM does where it reads them.

    Raises:
        InexactError: `invalid_request`.
    """
    if not isinstance(parts, list):
        if parts:
            raise invalid(f"{where}.content must be a string or a list of parts, found an object")
        return
    allowed = _READ_LATE.get(message["role"], ("text",))
    for part in parts:
        if _is_plain_text(part) or (_is_well_formed(part) and part.get("type") in allowed):
            continue
        if is_read_late(message, parts):
            raise invalid(
                f"{where}.content may only hold parts of the types {', '.join(allowed)}, found "
                f"{quoted(part)}"
            )
        return


def _is_plain_text(part: object) -> bool:
    """Whether a part is only a text, as most are, which every type takes."""
    return (
        type(part) is dict
        and part.keys() == _TYPE_AND_TEXT
        and type(part["text"]) is str
        and (part["type"] == "text")
    )


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
