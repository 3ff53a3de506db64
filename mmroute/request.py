"""What goes into one normalization: image items, and the options of the engine's API."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, TypeAlias

from mmroute.errors import invalid, shown

__all__ = [
    "ImageSize",
    "Message",
    "RequestOptions",
    "image_size",
    "image_sizes",
    "integers",
]

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
        if type(value) is not int or value < 1:
            raise invalid(f"image {name} must be a positive int of pixels, found {shown(value)}")
    if uuid is not None and not isinstance(uuid, str):
        raise invalid(f"image uuid must be a string, found {type(uuid).__name__}")
    return ImageSize(width, height, uuid)  # type: ignore[arg-type]  # both are ints here


def image_sizes(images: object) -> Sequence[ImageSize]:
    """Check the images of one request; None is no image.

    Raises:
        InexactError: `invalid_request` for anything but a sequence of `ImageSize`; or if one
            uuid names two sizes: the engine caches by it, and would reuse the first one's tokens.
    """
    if images is None:
        return ()
    if not isinstance(images, Sequence):
        raise invalid(f"images must be a sequence of ImageSize, found {type(images).__name__}")
    named: dict[str, ImageSize] = {}
    for index, image in enumerate(images):
        if not isinstance(image, ImageSize):
            raise invalid(f"images[{index}] must be an ImageSize, found {shown(image)}")
        image_size(image.width, image.height, image.uuid)
        if image.uuid is not None and named.setdefault(image.uuid, image) != image:
            raise invalid(
                f"the uuid {shown(image.uuid)} names images of two sizes, {named[image.uuid]} "
                f"and {image}"
            )
    return images


def integers(name: str, values: object) -> list[int]:
    """A list of ints from any iterable of integers, numpy's included.

    Raises:
        InexactError: `invalid_request`, naming the first value that is none.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise invalid(f"{name} must be a list of integers, found {type(values).__name__}")
    listed = list(values)
    if set(map(type, listed)) <= {int}:
        return listed
    for index, value in enumerate(listed):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise invalid(f"{name}[{index}] must be an integer, found {shown(value)}")
    return list(map(operator.index, listed))


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

    def check(self) -> None:
        """Check the kinds of all fields but `tools`, which the chat renderer checks.

        Raises:
            InexactError: `invalid_request`, naming the field.
        """
        for name in ("add_special_tokens", "add_generation_prompt", "continue_final_message"):
            if not isinstance(getattr(self, name), bool):
                raise invalid(f"{name} must be true or false, found {shown(getattr(self, name))}")
        for name in ("chat_template_kwargs", "mm_processor_kwargs"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
                raise invalid(f"{name} must be an object, found {shown(given)}")
