"""Two answers to one request: the same, different on purpose, or different.

Compared are the status, every field of an answer and the order of the keys; of an error its keys,
`type`, `param` and `code`. Not compared are request IDs that were drawn at random, times, the words
of error messages, and what an image's range says beside its offset and length.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from replayed import Posted
from server_helpers import COMPLETION
from two_servers import Reply

from mmroute.chat.schema import OTHER_MEDIA
from mmroute.parity.oracles.pictures import has_images

__all__ = ["DELIBERATE", "Deliberate", "judged", "verdict"]

Fields = Mapping[str, Any]

_OK: Final = 200
_NO_TOOLS: Final = (None, "none")
_DRAWN_LENGTH: Final = 16  # of a request ID's random part
UNSUPPORTED: Final = (422, "InexactRouting", "unsupported_field")
NO_MEDIA: Final = "unsupported_modality"


@dataclass(frozen=True, slots=True)
class Deliberate:
    """A difference that docs/server.md tells.

    Attributes:
        name: in the report.
        when: whether a request is one of those.
        theirs: vLLM's status.
        ours: status, and of an error its `type` and `param` as well.
        beside: fields in which two answers differ, and in no other; with dots.
        says: what vLLM's error message has in it.
    """

    name: str
    when: Callable[[Posted], bool]
    theirs: int
    ours: tuple[Any, ...]
    beside: tuple[str, ...] = ()
    says: str = ""

    def explains(self, request: Posted, theirs: Reply, ours: Reply) -> bool:
        """Whether the two answers differ in this, and in nothing else."""
        if theirs.status != self.theirs or not self.when(request):
            return False
        if self.ours != _outcome(ours)[: len(self.ours)]:
            return False
        if self.says and self.says not in theirs.body["error"]["message"]:
            return False
        if theirs.status != _OK or ours.status != _OK:
            return True
        return _without(theirs.body, self.beside) == _without(ours.body, self.beside)


def _calls_tools(request: Posted) -> bool:
    fields = request.fields
    return bool(fields.get("tools")) and fields.get("tool_choice", "auto") not in _NO_TOOLS


def _has_images(request: Posted) -> bool:
    return has_images(request.fields.get("messages"))


def _has(*names: str) -> Callable[[Posted], bool]:
    return lambda request: any(request.fields.get(name) is not None for name in names)


def _has_surrogate(request: Posted) -> bool:
    try:
        json.dumps(request.fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_no_text(request: Posted) -> bool:
    if isinstance(request.body, bytes):
        try:
            request.body.decode()
        except UnicodeDecodeError:
            return True
    return False


def _any_message(found: Callable[[Fields], bool]) -> Callable[[Posted], bool]:
    def when(request: Posted) -> bool:
        messages = request.fields.get("messages")
        return isinstance(messages, list) and any(
            found(message) for message in messages if isinstance(message, dict)
        )

    return when


def _is_unusual(message: Fields) -> bool:
    """More than a role and a text: then the API's schema tries several types."""
    return not (message.keys() == {"role", "content"} and isinstance(message["content"], str))


def _has_dropped_field(message: Fields) -> bool:
    """A field that only one of the API's types has, and of another kind than it has there."""
    texts = [message.get(n) for n in ("reasoning", "reasoning_content", "task", "tool_call_id")]
    lists = [message.get(n) for n in ("tools", "tool_calls")]
    wrong = any(not isinstance(text, str | None) for text in texts)
    return wrong or any(value is not None for value in lists) or message.get("content") == {}


def _has_text_without_text(message: Fields) -> bool:
    parts = message.get("content")
    return isinstance(parts, list) and any(
        isinstance(part, str)
        or (isinstance(part, dict) and not isinstance(part.get(str(part.get("type"))), str))
        for part in parts
    )


def _has_other_media(message: Fields) -> bool:
    parts = message.get("content")
    return isinstance(parts, list) and any(
        isinstance(part, dict) and (part.get("type") in OTHER_MEDIA or part.keys() & {*OTHER_MEDIA})
        for part in parts
    )


def _is_tag(value: object, name: str) -> bool:
    return isinstance(value, dict) and (name in value or value.get("type") == name)


def _has_tag(request: Posted) -> bool:
    names = ("response_format", "structured_outputs")
    return any(_is_tag(request.fields.get(name), "structural_tag") for name in names)


DELIBERATE: Final = (
    Deliberate("tools without a tool parser", _calls_tools, theirs=400, ours=(200,)),
    Deliberate(
        "too many pixels",
        _has_images, theirs=500, ours=(400, "BadRequestError"), says="decompression bomb",
    ),
    Deliberate(
        "ranges that overlap",
        _has_images, theirs=400, ours=(200,), says="globally non-overlapping",
    ),
    Deliberate(
        "no tensors",
        _has_images, theirs=200, ours=(200,),
        beside=("features.kwargs_data", "features.mm_metadata"),
    ),
    Deliberate(
        "no offsets of chats",
        _has("return_token_offsets"), theirs=200, ours=(200,), beside=("token_offsets",),
    ),
    Deliberate(
        "fields that are not covered",
        _has("reasoning_effort", "documents", "media_io_kwargs", "kv_transfer_params",
             "truncate_prompt_tokens"),
        theirs=200, ours=UNSUPPORTED,
    ),
    Deliberate(
        "a server error for a client's mistake",
        lambda _: True, theirs=500, ours=(400,),
    ),
    Deliberate(
        "a token ID above 2^32 - 1",
        lambda request: request.path == COMPLETION, theirs=200, ours=(400, "BadRequestError", None),
    ),
    Deliberate("a structural tag that xgrammar refuses", _has_tag, theirs=400, ours=(200,)),
    Deliberate(
        "other media, malformed",
        _any_message(_has_other_media), theirs=400, ours=(422, "InexactRouting", NO_MEDIA),
    ),
    Deliberate(
        "a message's fields of another kind",
        _any_message(_has_dropped_field), theirs=200, ours=(400, "BadRequestError"),
    ),
    Deliberate(
        "a text part without its text",
        _any_message(_has_text_without_text), theirs=200, ours=(400, "BadRequestError"),
    ),
    Deliberate(
        "processor options that are not covered",
        _has("mm_processor_kwargs"),
        theirs=200, ours=(422, "InexactRouting", "unsupported_processor_kwargs"),
    ),
    Deliberate("half of a surrogate pair", _has_surrogate, theirs=400, ours=()),
    *(
        Deliberate(
            "which of several mistakes", lambda request: request.several, theirs=400, ours=ours
        )
        for ours in ((400,), (404,), (422,))
    ),
    *(
        Deliberate("a tool's flags that stand for booleans", _has("tools"), theirs, ours)
        for theirs, ours in ((200, (400, "Bad Request")), (400, (400, "Bad Request")))
    ),
    Deliberate(
        "template arguments that are no variables",
        lambda request: "tokenize" in (request.fields.get("chat_template_kwargs") or {}),
        theirs=200, ours=(400, "BadRequestError", None),
    ),
    Deliberate("not UTF-8", _is_no_text, theirs=400, ours=(400, "Bad Request", "body")),
    Deliberate(
        "what is wrong with a message",
        _any_message(_is_unusual), theirs=400, ours=(400,),
    ),
)  # fmt: skip
"""Every difference that is meant."""


def verdict(request: Posted, theirs: Reply, ours: Reply) -> str | None:
    """`same`, the name of a deliberate difference, or None for one that nothing explains."""
    if judged(theirs) == judged(ours):
        return "same"
    for difference in DELIBERATE:
        if difference.explains(request, theirs, ours):
            return difference.name
    return None


def judged(reply: Reply) -> tuple[Any, ...]:
    """What is compared of an answer; as text, for the order of keys counts."""
    return (*_outcome(reply), None if _is_error(reply) else json.dumps(_comparable(reply.body)))


def _outcome(reply: Reply) -> tuple[Any, ...]:
    if not _is_error(reply):
        return (reply.status,)
    error = reply.body["error"]
    shape = [*reply.body, *error] if isinstance(error, dict) else None
    if shape != ["error", "message", "type", "param", "code"]:
        return reply.status, "another shape", json.dumps(reply.body)
    if error["code"] != reply.status or not isinstance(error["message"], str):
        return reply.status, "another code", error["code"]
    return reply.status, error["type"], error["param"]


def _is_error(reply: Reply) -> bool:
    return isinstance(reply.body, dict) and "error" in reply.body


def _comparable(body: Any) -> Any:
    """An answer without what is drawn at random, or the time."""
    body = copy.deepcopy(body)
    for item in body if isinstance(body, list) else [body]:
        if not isinstance(item, dict):
            continue
        if "request_id" in item:
            item["request_id"] = _without_random(str(item["request_id"]))
        placed = (item.get("features") or {}).get("mm_placeholders", {})
        for where in placed.get("image", ()):
            for own in where.keys() - {"offset", "length"}:
                del where[own]
        for card in item.get("data", ()):
            card["created"] = card["permission"][0]["created"] = 0
            card["permission"][0]["id"] = card["root"] = ""
    return body


def _without_random(request_id: str) -> str:
    prefix, _, rest = request_id.partition("-")
    drawn, dash, number = rest.partition("-")
    return f"{prefix}-{dash}{number}" if len(drawn) == _DRAWN_LENGTH else request_id


def _without(body: Any, names: tuple[str, ...]) -> str:
    body = _comparable(body)
    for item in body if isinstance(body, list) else [body]:
        for name in names:
            *path, last = name.split(".")
            inner = item
            for key in path:
                inner = (inner or {}).get(key)
            if isinstance(inner, dict):
                inner.pop(last, None)
    return json.dumps(body)
