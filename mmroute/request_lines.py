"""Request lines: what comes in as JSON Lines, checked before it reaches the request path."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mmroute.errors import InexactError, Reason, invalid, problem, shown
from mmroute.normalizer import Normalizer, Routing
from mmroute.request import ImageSize, image_size

__all__ = ["RequestLine", "answer_line"]

_MAX_CACHE_SALT = 128
# Fields of the engine's API that change the prompt, and are not covered.
_UNSUPPORTED = (
    "chat_template",
    "documents",
    "media_io_kwargs",
    "mm_payload",
    "prompt_embeds",
    "reasoning_effort",
    "suffix",
    "truncate_prompt_tokens",
)
# How like a known field's name an unknown one is that must be a mistake.
_MISTYPED = 0.85


def _image(value: object) -> ImageSize:
    if not isinstance(value, Mapping):
        raise ValueError("an image must be an object with width and height")  # noqa: TRY004 - pydantic reports ValueErrors
    try:
        return image_size(value.get("width"), value.get("height"), value.get("uuid"))
    except InexactError as inexact:
        raise ValueError(str(inexact)) from None


def _cache_salt(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_CACHE_SALT:
        raise ValueError(f"cache_salt must be a string of 1 to {_MAX_CACHE_SALT} characters")
    if set(value) & set("@/\\\0"):
        raise ValueError("cache_salt must not contain @, /, \\ or NUL")
    return value


class RequestLine(BaseModel):
    """One line of ``mmroute tokens``. Fields without influence on token IDs are ignored."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)

    id: str | int | None = None
    messages: list[Any] | None = None
    prompt: str | None = None
    prompt_token_ids: list[Any] | None = None
    images: list[Annotated[ImageSize, BeforeValidator(_image)]] = Field(default_factory=list)
    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    cache_salt: Annotated[Any, BeforeValidator(_cache_salt)] = None
    lora: dict[str, Any] | None = None

    def route(self, normalizer: Normalizer) -> Routing:
        """The answer to this request. Salt and LoRA do not change token IDs."""
        return normalizer.normalize(
            messages=self.messages,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            images=self.images,
            add_special_tokens=self.add_special_tokens,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            chat_template_kwargs=self.chat_template_kwargs,
            tools=self.tools,
            mm_processor_kwargs=self.mm_processor_kwargs,
        )


def answer_line(line: str | bytes, normalizer: Normalizer) -> dict[str, Any]:
    """The answer to one line, ready for JSON; a bad line is answered too."""
    line_id: str | int | None = None
    try:
        value = _json_object(line)
        found = value.get("id")
        line_id = found if isinstance(found, str) or type(found) is int else None
        routing = _request(value).route(normalizer)
    except InexactError as inexact:
        routing = Routing(reason=inexact.reason, message=str(inexact))
    if routing.reason is not None:
        return {
            "id": line_id,
            "exact": False,
            "reason": routing.reason.value,
            "message": routing.message,
        }
    placeholders = [
        {"offset": p.offset, "length": p.length}
        | ({"embed_runs": [[int(e), n] for e, n in p.embed_runs]} if p.embed_runs else {})
        for p in sorted(routing.placeholders, key=lambda p: p.offset)
    ]
    return {
        "id": line_id,
        "exact": True,
        "token_ids": routing.token_ids.tolist(),
        "placeholders": placeholders,
    }


def _json_object(line: str | bytes) -> dict[str, Any]:
    try:
        # Some editors begin a file with a byte order mark.
        text = line.decode("utf-8-sig") if isinstance(line, bytes) else line
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise invalid(f"the line is not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"the line is not JSON ({error}); each line is one whole request") from error
    if not isinstance(value, dict):
        raise invalid(f"the line must be a JSON object, found {type(value).__name__}")
    return value


def _request(value: dict[str, Any]) -> RequestLine:
    unsupported = [name for name in _UNSUPPORTED if value.get(name) is not None]
    if unsupported:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{', '.join(unsupported)}: the engine's token IDs depend on it, and it is not covered",
        )
    for name in value.keys() - RequestLine.model_fields.keys():
        near = difflib.get_close_matches(name, RequestLine.model_fields, n=1, cutoff=_MISTYPED)
        if near:
            raise invalid(f"there is no field {shown(name)}; did you mean {near[0]!r}?")
    try:
        return RequestLine.model_validate(value)
    except ValidationError as error:
        raise invalid("; ".join(map(problem, error.errors()))) from error
