"""Finds the parts in which two requests differ, and restores each of them in a request."""

from __future__ import annotations

import difflib
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pybase64
from PIL import Image

from mmroute.errors import quoted
from mmroute.lab.parity.differences import num_same
from mmroute.requests.items import Modality
from mmroute.requests.request import Lora, Request


class Cause(StrEnum):
    """The causes that keep two requests from sharing more blocks."""

    LORA = "lora"
    CACHE_SALT = "cache_salt"
    ENGINE_SETTING = "engine_setting"
    TOOLS_ORDER = "tools_order"
    TOOLS = "tools"
    TEMPLATE_KWARGS = "template_kwargs"
    PROCESSOR_KWARGS = "processor_kwargs"
    GENERATION_PROMPT = "generation_prompt"
    OPTION = "option"
    SYSTEM_PROMPT = "system_prompt"
    MESSAGE_INSERTED = "message_inserted"
    MESSAGE_DROPPED = "message_dropped"
    MESSAGE_EDITED = "message_edited"
    WHITE_SPACE = "white_space"
    UNICODE_FORM = "unicode_form"
    ITEM_REPLACED = "item_replaced"
    ITEM_ENCODED_AGAIN = "item_encoded_again"
    ITEM_UUID = "item_uuid"
    PROMPT = "prompt"
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class Change:
    """One part in which a second request differs from a first."""

    cause: Cause  # the kind of part
    text: str  # the difference in one or two sentences, without text of the prompts
    restored: Request  # the second request with this part taken from the first
    was: str = ""  # this part of the first request, shortened; empty if it would not help
    now: str = ""  # this part of the second request, shortened; empty if it would not help


_BY_PARTS: Final = {"messages", "prompt", *(f"{modality}s" for modality in Modality)}
_CAUSES: Final[Mapping[str, Cause]] = {
    "lora": Cause.LORA,
    "model": Cause.LORA,  # an adapter's name
    "cache_salt": Cause.CACHE_SALT,
    "tools": Cause.TOOLS,
    "chat_template_kwargs": Cause.TEMPLATE_KWARGS,
    "mm_processor_kwargs": Cause.PROCESSOR_KWARGS,
    "media_io_kwargs": Cause.PROCESSOR_KWARGS,
    "add_generation_prompt": Cause.GENERATION_PROMPT,
    "prompt_token_ids": Cause.PROMPT,
}
_NEVER_SHARED: Final = {
    "lora": " The engine shares no blocks between adapters, or with the model alone.",
    "cache_salt": " The engine shares no blocks between salts, or with requests without one.",
}
_OPTIONS: Final = [name for name in Request._fields if name not in _CAUSES.keys() | _BY_PARTS]

_CLOCK: Final = re.compile(r"\d")
_ENCODED_AGAIN: Final = (
    "shows the same picture in a file with other bytes, so it was encoded again on its way. The "
    "engine hashes the file: keep its bytes, or send a uuid."
)
_SHOWN: Final = 60  # the characters of a text that an excerpt shows
_BEFORE: Final = 20
_SIDE: Final = 64  # pixels to which two pictures are scaled
_MAX_DIFFERENCE: Final = 6.0  # the average over all pixels, of 255


def changes(first: Request, second: Request) -> Iterator[Change]:
    """The parts in which `second` differs from `first`, outermost first."""
    for name in (*_CAUSES, *_OPTIONS):
        cause = _CAUSES.get(name, Cause.OPTION)
        old, new = getattr(first, name), getattr(second, name)
        if _written(old) == _written(new):
            continue
        restored = second._replace(**{name: old})
        if name == "tools" and _is_reordered(old, new):
            yield Change(Cause.TOOLS_ORDER, "The same tools are in another order.", restored)
        else:
            text = f"`{name}` differs.{_NEVER_SHARED.get(name, '')}"
            was, now = quoted(_as_in_a_line(old)), quoted(_as_in_a_line(new))
            yield Change(cause, text, restored, was, now)
    for modality in Modality:
        yield from _item_changes(first, second, modality)
    if first.messages is not None and second.messages is not None:
        yield from _message_changes(first, second)
    if isinstance(first.prompt, str) and isinstance(second.prompt, str):
        if first.prompt != second.prompt:
            restored = second._replace(prompt=first.prompt)
            yield _text_change("The prompt", first.prompt, second.prompt, Cause.PROMPT, restored)
    elif (first.messages is None) != (second.messages is None):
        text = "One request has messages, and the other one has a prompt."
        yield Change(Cause.PROMPT, text, first)


def _as_in_a_line(value: object) -> object:
    """A value as a request line has it."""
    return {"lora_name": value.name, "lora_path": value.path} if isinstance(value, Lora) else value


def _written(value: object) -> str:
    return json.dumps(value, default=repr)


def _is_reordered(old: object, new: object) -> bool:
    if not isinstance(old, Sequence) or not isinstance(new, Sequence):
        return False
    return sorted(map(_written, old)) == sorted(map(_written, new))


def _item_changes(first: Request, second: Request, modality: Modality) -> Iterator[Change]:
    name = f"{modality}s"
    old, new = list(getattr(first, name)), list(getattr(second, name))
    for at, (before, after) in enumerate(zip(old, new, strict=False)):
        if before == after:
            continue
        items: Any = [*new[:at], before, *new[at + 1 :]]
        restored = second._replace(**{name: items})
        where = f"{modality} {at + 1} of `{name}`"
        one, other = before.size, after.size
        if str(one) != str(other):
            yield Change(Cause.ITEM_REPLACED, f"{where} was {one} and is {other}.", restored)
            continue
        files = [getattr(item, "data", b"") for item in (before, after)]
        replaced = f"is another file of the same size ({one})."
        yield _item_change(where, (one.uuid, other.uuid), files, replaced, restored)


def _item_change(
    where: str,
    uuids: tuple[object, object],
    files: Sequence[bytes | str],
    replaced: str,
    restored: Request,
) -> Change:
    """The difference of two items; `replaced` is the text if they have nothing in common."""
    was, now = uuids
    if was != now:
        text = f"{where} has another uuid."
        return Change(Cause.ITEM_UUID, text, restored, quoted(was), quoted(now))
    if _same_picture(*files):
        text = f"{where} {_ENCODED_AGAIN}"
        return Change(Cause.ITEM_ENCODED_AGAIN, text, restored)
    return Change(Cause.ITEM_REPLACED, f"{where} {replaced}", restored)


def _same_picture(first: bytes | str, second: bytes | str) -> bool:
    """Whether two files or data URLs are pictures of one size that look alike.

    It decodes both pictures, so it must not be used on the request path.
    """
    try:
        one, other = (Image.open(io.BytesIO(_data(file))) for file in (first, second))
        if one.size != other.size:
            return False
        pixels = [
            np.asarray(image.convert("RGB").resize((_SIDE, _SIDE)), dtype=np.float32)
            for image in (one, other)
        ]
    except (OSError, ValueError, Image.DecompressionBombError):
        return False  # they are not pictures
    return float(np.abs(pixels[0] - pixels[1]).mean()) <= _MAX_DIFFERENCE


def _data(file: bytes | str) -> bytes:
    if isinstance(file, bytes):
        return file
    head, _, encoded = file.partition(",")
    return pybase64.b64decode(encoded) if head.startswith("data:") else b""


def _message_changes(first: Request, second: Request) -> Iterator[Change]:
    old, new = list(first.messages or ()), list(second.messages or ())
    matcher = difflib.SequenceMatcher(
        None, list(map(_written, old)), list(map(_written, new)), autojunk=False
    )
    for what, i, i_end, j, j_end in matcher.get_opcodes():
        if what == "insert" and i == len(old):
            text = (
                "The conversation goes on, and its template then renders an earlier turn "
                "differently: the generation prompt, the beginning of an answer, or a system "
                "prompt that it puts into the last message."
            )
            yield Change(Cause.GENERATION_PROMPT, text, second._replace(messages=new[:j]))
            return
        restored = second._replace(messages=[*new[:j], *old[i:i_end], *new[j_end:]])
        if what == "insert":
            text = f"Message {j + 1} ({_role(new[j])}) is new, and stands between known ones."
            yield Change(Cause.MESSAGE_INSERTED, text, restored)
        elif what == "delete":
            text = f"Message {i + 1} of the first request ({_role(old[i])}) is missing."
            yield Change(Cause.MESSAGE_DROPPED, text, restored)
        elif what == "replace":
            for at, (before, after) in enumerate(zip(old[i:i_end], new[j:j_end], strict=False), j):
                restored = second._replace(messages=[*new[:at], before, *new[at + 1 :]])
                where = f"Message {at + 1} ({_role(after)})"
                yield _message_change(before, after, where, restored)


def _role(message: Any) -> str:
    return str(message.get("role")) if isinstance(message, Mapping) else "?"


def _message_change(old: Any, new: Any, where: str, restored: Request) -> Change:
    """The difference of two messages at one place."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return Change(Cause.MESSAGE_EDITED, f"{where} differs.", restored)
    if _role(old) != _role(new):
        text = f"{where} has another role."
        return Change(Cause.MESSAGE_EDITED, text, restored, _role(old), _role(new))
    edited = Cause.SYSTEM_PROMPT if _role(new) in ("system", "developer") else Cause.MESSAGE_EDITED
    for before, after in zip(_parts(old), _parts(new), strict=False):
        if before == after:
            continue
        if "text" in before and "text" in after:
            return _text_change(where, str(before["text"]), str(after["text"]), edited, restored)
        uuids = before.get("uuid"), after.get("uuid")
        urls = [_url(before), _url(after)]
        return _item_change(f"An item of {where.lower()}", uuids, urls, "is another one.", restored)
    names = sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
    return Change(edited, f"{where} differs in {', '.join(names)}.", restored)


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part if isinstance(part, dict) else {"text": str(part)} for part in content or ()]


def _url(part: Mapping[str, Any]) -> str:
    value = part.get(str(part.get("type")))
    return str((value.get("url") if isinstance(value, Mapping) else value) or "")


def _text_change(where: str, old: str, new: str, otherwise: Cause, restored: Request) -> Change:
    at = num_same(old, new)
    place = f"from character {at + 1} on"
    if unicodedata.normalize("NFKC", old) == unicodedata.normalize("NFKC", new):
        text = f"{where} is the same text in another Unicode form, {place}."
        letters = ascii(old[at : at + 1]), ascii(new[at : at + 1])
        return Change(Cause.UNICODE_FORM, text, restored, *letters)
    excerpts = repr(_excerpt(old, at)), repr(_excerpt(new, at))
    if old.split() == new.split():
        text = f"{where} has other white space, {place}."
        return Change(Cause.WHITE_SPACE, text, restored, *excerpts)
    clock = _CLOCK.search(old[at : at + 2]) and _CLOCK.search(new[at : at + 2])
    hint = " A clock or a counter belongs after the text that requests share." if clock else ""
    return Change(otherwise, f"{where} differs {place}.{hint}", restored, *excerpts)


def _excerpt(text: str, at: int) -> str:
    return text[max(0, at - _BEFORE) : at + _SHOWN - _BEFORE]
