"""What goes into one normalization: image items, and the options of the engine's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mmroute.errors import invalid, shown

__all__ = ["ImageSize", "Message", "RequestOptions", "image_size"]

Message: TypeAlias = Mapping[str, Any]
"""One OpenAI chat message. Its values come from a client and are checked where they are used."""


@dataclass(frozen=True, slots=True)
class ImageSize:
    """An image, as far as token IDs depend on it.

    Attributes:
        width: pixels, upright: after any EXIF rotation that the engine applies.
        height: pixels, likewise.
        uuid: the client's own name for the image, if it sent one. Token IDs do not depend on
            it; image identities do.

    >>> ImageSize(1280, 720)
    ImageSize(width=1280, height=720, uuid=None)
    """

    width: int
    height: int
    uuid: str | None = None

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


def image_size(width: object, height: object, uuid: object = None) -> ImageSize:
    """Check what a client says of an image.

    Raises:
        InexactError: `invalid_request` for anything but two positive integers and a text.
    """
    for name, value in (("width", width), ("height", height)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise invalid(
                f"image {name} must be a positive integer of pixels, found {shown(value)}",
            )
    if uuid is not None and not isinstance(uuid, str):
        raise invalid(f"image uuid must be a string, found {type(uuid).__name__}")
    return ImageSize(width, height, uuid)  # type: ignore[arg-type]  # both are ints here


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The request's own fields, with the engine's defaults (vLLM 0.33.0, OpenAI API).

    Attributes:
        add_special_tokens: put BOS in front of text; chat requests and rendered prompts: no.
        add_generation_prompt: end a chat prompt with the assistant's header.
        continue_final_message: leave the last message open.
        chat_template_kwargs: variables for the chat template.
        tools: OpenAI tool definitions.
        mm_processor_kwargs: overrides for the image processor.
    """

    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] | None = None
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
