"""Requests and answers as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, Reason, did_you_mean, invalid, quoted
from mmroute.requests.items import Item, Modality, audio_length, image_size, video_size
from mmroute.requests.request import Lora, Request

if TYPE_CHECKING:
    from mmroute.normalizer import Normalizer

# Fields of the engine's API that change the prompt, and are not covered.
_UNSUPPORTED = ("chat_template", "mm_payload", "prompt_embeds", "suffix")
# Fields of the engine's API on which only the prompts of a few models depend.
_API_FIELDS = ("response_format", "thinking", "tool_choice")
_LORA_KEYS = frozenset({"lora_name", "lora_path"})
# An unknown field whose name is so similar to a known one must be a mistake.
_MISTYPED = 0.85
_MISTYPED_IN_ITEMS = 0.8
# The function that makes an item of each kind, and the fields that it takes.
_ITEM_FIELDS: Final[Mapping[str, tuple[Callable[..., Item], tuple[str, ...]]]] = {
    "images": (image_size, ("width", "height", "uuid")),
    "videos": (video_size, ("width", "height", "num_frames", "fps", "uuid")),
    "audios": (audio_length, ("num_samples", "sampling_rate", "uuid")),
}


def _checked_items(name: str, values: object) -> list[Item]:
    if not isinstance(values, list):
        raise invalid(f"{name} must be a list of objects, found {quoted(values)}")
    make, fields = _ITEM_FIELDS[name]
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise invalid(f"{name}[{index}] must be an object, found {quoted(value)}")
        for unknown in value.keys() - set(fields):
            if hint := did_you_mean(unknown, fields, cutoff=_MISTYPED_IN_ITEMS):
                raise invalid(f"{name}[{index}] has no field {quoted(unknown)}{hint}")
    return [make(*map(value.get, fields)) for value in values]


def _lora(value: object) -> Lora:
    if not isinstance(value, Mapping) or not value.keys() >= _LORA_KEYS:
        raise invalid(
            'lora must be an object with "lora_name" and "lora_path", as vLLM has them, found '
            f"{quoted(value)}"
        )
    number = value.get("lora_int_id", 1)
    if type(number) is not int or number < 1:
        raise invalid(f"lora.lora_int_id must be a positive integer, found {quoted(number)}")
    return Lora(value["lora_name"], value["lora_path"])


Answer: TypeAlias = Callable[[Routing], dict[str, Any]]
"""The fields of an exact answer, without its id."""


def answer_line(
    line: str | bytes, answer_of: Callable[[Request], Routing], answer: Answer
) -> dict[str, Any]:
    """The answer to one line, as values for JSON. A bad line has an inexact answer.

    Args:
        line: a JSON object.
        answer_of: answers a request.
        answer: returns the fields of an exact answer.
    """
    line_id: str | int | None = None
    try:
        value = json_object(line)
        own_id = value.get("id")
        if own_id is not None and not isinstance(own_id, str) and type(own_id) is not int:
            raise invalid(f"id must be a text or an integer, found {quoted(own_id)}")
        line_id = own_id
        routing = answer_of(request_of(value))
    except InexactError as inexact:
        routing = Routing(reason=inexact.reason, message=str(inexact))
    return {"id": line_id, **_answered(routing, answer)}


def answer_line_for_each(
    line: str | bytes, fleet: Mapping[str, Normalizer], answer: Answer
) -> dict[str, Any]:
    """The answers to one line for several kinds of workers, by their names.

    Args:
        line: a JSON object.
        fleet: normalizers of one model.
        answer: returns the fields of an exact answer.
    """
    first, *others = fleet.values()
    routings: list[Routing] = []

    def answer_of(request: Request) -> Routing:
        routings.extend(first.answer_with(others, request))
        return next(filter(attrgetter("exact"), routings), routings[0])

    def answer_all(_: Routing) -> dict[str, Any]:
        each = zip(fleet, routings, strict=True)
        return {"backends": {name: _answered(routing, answer) for name, routing in each}}

    return answer_line(line, answer_of, answer_all)


def _answered(routing: Routing, answer: Answer) -> dict[str, Any]:
    try:
        if routing.reason is None:
            return {"exact": True, **answer(routing)}
        reason, message = routing.reason, routing.message
    except InexactError as inexact:
        reason, message = inexact.reason, str(inexact)
    return {"exact": False, "reason": reason.value, "message": message}


def tokens_answer(routing: Routing) -> dict[str, Any]:
    """The fields of an answer of ``mmroute tokens``: token IDs, and the ranges of items."""
    placeholders = [
        {"offset": p.offset, "length": p.length}
        | ({} if p.modality is Modality.IMAGE else {"modality": p.modality.value})
        | ({"embed_runs": [[int(e), n] for e, n in p.embed_runs]} if p.embed_runs else {})
        for p in routing.placeholders
    ]
    return {"token_ids": routing.token_ids.tolist(), "placeholders": placeholders}


def blocks_answer(routing: Routing, form: BlockForm) -> dict[str, Any]:
    """The fields of an answer of ``mmroute blocks``: block hashes, and the images they cover.

    Raises:
        InexactError: `image_identity_unknown`, `block_size_unknown`.
    """
    hashes = form.of(routing)
    identities = [identity for identity in routing.identities if identity is not None]
    return {
        **hashes,
        "image_identities": [identity.value for identity in identities],
        "image_identity_sources": [identity.source.value for identity in identities],
        **({"model_id": routing.hashing.settings.model_id} if routing.covers_model_id else {}),
    }


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, and their numbers from 1."""
    return ((n, line) for n, line in enumerate(lines, 1) if line.strip())


def json_object(line: str | bytes) -> dict[str, Any]:
    """The JSON object of one line.

    Raises:
        InexactError: `invalid_request`: the line is not a JSON object.
    """
    try:
        # Some editors begin a file with a byte order mark.
        text = line.decode("utf-8-sig") if isinstance(line, bytes) else line
        value = json.loads(text.rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise invalid(f"the line is not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"the line is not JSON ({error}); each line is one whole request") from error
    if not isinstance(value, dict):
        raise invalid(f"the line must be a JSON object, found {type(value).__name__}")
    return value


def request_of(value: Mapping[str, Any]) -> Request:
    """The request in a JSON object.

    Raises:
        InexactError: `unsupported_field`; `invalid_request`, naming the field.
    """
    unsupported = [name for name in _UNSUPPORTED if value.get(name) is not None]
    if unsupported:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{', '.join(unsupported)}: the engine's token IDs depend on it, and it is not covered",
        )
    misplaced = sorted({*_LORA_KEYS, "lora_int_id", "lora_request"} & value.keys())
    if misplaced:
        raise invalid(
            f'{", ".join(misplaced)}: an adapter goes into "lora", which has its name and path'
        )
    for name in value.keys() - {"id", *Request._fields}:
        hint = did_you_mean(name, Request._fields, cutoff=_MISTYPED)
        if hint:
            raise invalid(f"there is no field {quoted(name)}{hint}")
    fields: dict[str, Any] = {name: value[name] for name in Request._fields if name in value}
    api_fields = {name: value[name] for name in _API_FIELDS if value.get(name) is not None}
    if api_fields:
        fields["api_fields"] = api_fields
    for name in _ITEM_FIELDS:
        if fields.get(name) is not None:
            fields[name] = _checked_items(name, fields[name])
    if fields.get("lora") is not None:
        fields["lora"] = _lora(fields["lora"])
    request = Request.of(fields)
    request.check()
    return request
