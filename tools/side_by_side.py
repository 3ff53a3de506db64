"""Two answers to one request: the same, different on purpose, or different.

Compared are the status, every field of an answer and the order of the keys; of an error its keys
and `code`. Not compared are request IDs that were drawn at random, times, what an error says, and
what an image's range says beside its offset and length.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from replayed import Posted
from server_differences import DELIBERATE, Deliberate
from two_servers import Reply

_OK: Final = 200
_DRAWN_LENGTH: Final = 16  # of a request ID's random part


def verdict(request: Posted, theirs: Reply, ours: Reply) -> str | None:
    """`same`, the name of a deliberate difference, or None for one that nothing explains."""
    if judged(theirs) == judged(ours):
        return "same"
    for difference in DELIBERATE:
        if _explains(difference, request, theirs, ours):
            return difference.name
    return None


def _explains(difference: Deliberate, request: Posted, theirs: Reply, ours: Reply) -> bool:
    """Whether two answers differ in this, and in nothing else."""
    if theirs.status != difference.theirs or not difference.when(request):
        return False
    if _outcome(ours) != (difference.ours,):
        return False
    if difference.says and difference.says not in theirs.body["error"]["message"]:
        return False
    if theirs.status != _OK or ours.status != _OK or difference.beside is None:
        return True
    return _without(theirs.body, difference.beside) == _without(ours.body, difference.beside)


def judged(reply: Reply) -> tuple[Any, ...]:
    """What is compared of an answer; as text, for the order of keys counts."""
    if _is_error(reply):
        return _outcome(reply)
    return (reply.status, json.dumps(_comparable(reply.body)))


def _outcome(reply: Reply) -> tuple[Any, ...]:
    if not _is_error(reply):
        return (reply.status,)
    error = reply.body["error"]
    shape = [*reply.body, *error] if isinstance(error, dict) else None
    if shape != ["error", "message", "type", "param", "code"]:
        return reply.status, "another shape", json.dumps(reply.body)
    if error["code"] != reply.status or not isinstance(error["message"], str):
        return reply.status, "another code", error["code"]
    return (reply.status,)


def _is_error(reply: Reply) -> bool:
    return isinstance(reply.body, dict) and "error" in reply.body


def _comparable(body: Any) -> Any:
    """An answer without what is drawn at random, or the time."""
    body = copy.deepcopy(body)
    for item in body if isinstance(body, list) else [body]:
        if not isinstance(item, dict):
            continue
        for answer in (item, item.get("chunk", {})):
            if "created" in answer:
                answer["created"] = 0
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
    own = request_id.removeprefix("resp_")
    if own != request_id and len(own) == _DRAWN_LENGTH:
        return "resp_"
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
