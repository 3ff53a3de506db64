"""Requests and answers as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mmroute.errors import InexactError, Reason, did_you_mean, invalid, json_type, quoted
from mmroute.requests.checks import audio_length, check_request, image_size, video_size
from mmroute.requests.items import Item
from mmroute.requests.request import Lora, Request

# Fields of the engine's API that change the prompt, and are not covered.
_UNSUPPORTED = ("chat_template", "mm_payload", "prompt_embeds", "suffix")
# Fields of the engine's API on which only the prompts of a few models depend.
API_FIELDS = ("response_format", "thinking", "tool_choice")
_LORA_KEYS = frozenset({"lora_name", "lora_path"})
# An unknown field whose name is so similar to a known one must be a mistake.
_MISTYPED = 0.85
_MISTYPED_IN_ITEMS = 0.8
_MAX_UNKNOWN = 1000  # names; each is compared with those that are known
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
    left = _MAX_UNKNOWN
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise invalid(f"{name}[{index}] must be an object, found {quoted(value)}")
        others = value.keys() - set(fields)
        left -= len(others)
        if left < 0:
            raise invalid(f"{name} have more than {_MAX_UNKNOWN} fields that are not read")
        for unknown in others:
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


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, and their numbers from 1."""
    return ((n, line) for n, line in enumerate(lines, 1) if line.strip())


def json_object(line: str | bytes) -> dict[str, Any]:
    """The JSON object of one line."""
    try:
        # Some editors begin a file with a byte order mark.
        text = line.decode("utf-8-sig") if isinstance(line, bytes) else line
        value = json.loads(text.rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise invalid(f"the line is not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"the line is not JSON ({error}); each line is one whole request") from error
    if not isinstance(value, dict):
        raise invalid(f"the line must be a JSON object, found {json_type(value)}")
    return value


def request_of(value: Mapping[str, Any]) -> Request:
    """The request in a JSON object."""
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
    others = value.keys() - {"id", *Request._fields}
    if len(others) > _MAX_UNKNOWN:
        raise invalid(f"the line has more than {_MAX_UNKNOWN} fields that no request has")
    for name in others:
        # With the same letters it is a field whose letters were swapped: skip_special_tokens, which
        # is none, is more similar to add_special_tokens than loar is to lora.
        same = [field for field in Request._fields if len(field) == len(name)]
        swapped = [field for field in same if sorted(field) == sorted(name)]
        known, cutoff = (swapped, 0.0) if swapped else (Request._fields, _MISTYPED)
        if hint := did_you_mean(name, known, cutoff=cutoff):
            raise invalid(f"there is no field {quoted(name)}{hint}")
    fields: dict[str, Any] = {name: value[name] for name in Request._fields if name in value}
    api_fields = {name: value[name] for name in API_FIELDS if value.get(name) is not None}
    if api_fields:
        fields["api_fields"] = api_fields
    for name in _ITEM_FIELDS:
        if fields.get(name) is not None:
            fields[name] = _checked_items(name, fields[name])
    if fields.get("lora") is not None:
        fields["lora"] = _lora(fields["lora"])
    request = Request.of(fields)
    check_request(request)
    return request
