"""Request lines: what comes in as JSON Lines, checked before it reaches the request path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.normalizer import Normalizer, Routing
from mmroute.request import ImageSize, image_size

__all__ = ["RequestLine", "answer_line", "parse_line"]

_MAX_CACHE_SALT = 128


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
    """One line of ``mmroute tokens``. Fields it does not know are ignored, as the engine does."""

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


def parse_line(line: str) -> RequestLine:
    """Read one line.

    Raises:
        InexactError: `invalid_request`, naming each field and what was found in it.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the line is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise invalid(
            f"the line must be a JSON object, found {type(value).__name__}",
        )
    try:
        return RequestLine.model_validate(value)
    except ValidationError as error:
        raise invalid("; ".join(map(_problem, error.errors()))) from error


def answer_line(line: str, normalizer: Normalizer) -> dict[str, Any]:
    """The answer to one line, ready for JSON; a bad line is answered too."""
    try:
        request = parse_line(line)
    except InexactError as inexact:
        return _inexact(_id_of(line), inexact.reason, str(inexact))
    routing = request.route(normalizer)
    if routing.reason is not None:
        return _inexact(request.id, routing.reason, routing.message)
    placeholders = [
        {"offset": p.offset, "length": p.length}
        | ({"embed_runs": [[int(e), n] for e, n in p.embed_runs]} if p.embed_runs else {})
        for p in sorted(routing.placeholders, key=lambda p: p.offset)
    ]
    return {
        "id": request.id,
        "exact": True,
        "token_ids": routing.token_ids.tolist(),
        "placeholders": placeholders,
    }


def _inexact(line_id: str | int | None, reason: Reason, message: str) -> dict[str, Any]:
    return {"id": line_id, "exact": False, "reason": reason.value, "message": message}


def _id_of(line: str) -> str | int | None:
    """The id of a line that is refused, if it can be told."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _problem(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    field = ".".join(map(str, error["loc"]))
    message = error["msg"].removeprefix("Value error, ")
    return f"{field}: {message} (found {shown(error['input'])})"
