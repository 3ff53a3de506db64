"""A request: its prompt in one of three forms, its items, and the options of the engine's API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from mmroute.errors import did_you_mean, quoted
from mmroute.requests.items import (
    AudioLength,
    Image,
    Item,
    Items,
    Modality,
    Video,
)

NO_ITEMS: Final = ()
"""The default of fields that hold items; a field that is this object was not sent."""
NO_KWARGS: Final[Mapping[str, Any]] = {}
"""The default of fields that hold keyword arguments; a field that is this object was not sent."""
KWARGS: Final = (
    "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "api_fields",
)  # fmt: skip
"""The fields that hold keyword arguments."""
# Fields that a client may send as null instead of leaving them out.
_NULLABLE: Final = frozenset({"images", "videos", "audios", *KWARGS, "mm_hashes"})

Message: TypeAlias = Mapping[str, Any]
"""One OpenAI chat message. Its values come from a client and are checked where they are used."""


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA adapter, by the values on which block hashes depend.

    Attributes:
        name: the name by which requests ask for the adapter.
        path: the path from which the engine loads it.
    """

    name: str
    path: str


class Request(NamedTuple):
    """One request, with the engine's defaults (vLLM, OpenAI API).

    Attributes:
        messages: the OpenAI chat messages. A data URL carries its own item; ``{"type": "image"}``
            parts, and links that are not followed, take `images` in order. A request has either
            these, or `prompt`, or `prompt_token_ids`.
        prompt: the prompt as text, with placeholders in it.
        prompt_token_ids: the prompt as token IDs, not yet expanded.
        images: the sizes (or files, see `mmroute.read_image`) of the other images, in the order of
            their placeholders.
        videos: the numbers or files of the other videos, in the order of their placeholders.
        audios: the numbers of the other audio, in the order of their placeholders.
        model: the name by which a client asks for the model. The name of an adapter in the engine's
            settings stands for `lora`; no other name has an effect.
        add_special_tokens: whether to put BOS before a text, as the completions API does and the
            chat API does not.
        add_generation_prompt: whether to end a chat with the header of an assistant's message.
        continue_final_message: whether to leave the last message open.
        chat_template_kwargs: variables for the chat template.
        tools: OpenAI tool definitions.
        reasoning_effort: the effort, which the chat template or the engine's renderer may read.
        documents: documents for chat templates that read them.
        mm_processor_kwargs: overrides for the model's processor.
        media_io_kwargs: overrides for reading media, by modality.
        truncate_prompt_tokens: the number of tokens that the prompt may keep; -1 for as many as
            fit the context. A prompt that it shortens has no exact answer.
        mm_hashes: hexadecimal digits for each image, in the order of their placeholders, by which
            the prefix cache of an engine with such a field tells them apart. Only its
            ``/generate`` has it: give it with `messages` only if you send them there.
        cache_salt: a text that keeps the caches of tenants apart; block hashes cover it.
        reads_cache: whether the engine looks the prompt up in its prefix cache. It does not for
            log probabilities of the prompt, which only a computed prompt has.
        lora: the adapter that answers; block hashes cover it.
        api_fields: ``response_format``, ``tool_choice`` and other fields of the engine's API that
            change the prompts of a few models only. These models have no exact answer then.
    """

    messages: Sequence[Message] | None = None
    prompt: str | None = None
    prompt_token_ids: Iterable[int] | None = None
    images: Sequence[Image] = NO_ITEMS
    videos: Sequence[Video] = NO_ITEMS
    audios: Sequence[AudioLength] = NO_ITEMS
    model: str | None = None
    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS
    tools: Sequence[Mapping[str, Any]] | None = None
    reasoning_effort: str | None = None
    documents: Sequence[Mapping[str, str]] | None = None
    mm_processor_kwargs: Mapping[str, Any] = NO_KWARGS
    media_io_kwargs: Mapping[str, Any] = NO_KWARGS
    truncate_prompt_tokens: int | None = None
    mm_hashes: Sequence[Any] = NO_ITEMS
    cache_salt: str | None = None
    reads_cache: bool = True
    lora: Lora | None = None
    api_fields: Mapping[str, Any] = NO_KWARGS

    def __repr__(self) -> str:
        fields = zip(self._fields, self, self._field_defaults.values(), strict=True)
        shown = (f"{name}={quoted(value)}" for name, value, default in fields if value != default)
        return f"Request({', '.join(shown)})"

    @classmethod
    def of(cls, fields: Mapping[str, object]) -> Request:
        """The request with these fields.

        Raises:
            TypeError: there is no such field.
        """
        values: dict[str, Any] = {
            name: value
            for name, value in fields.items()
            if value is not None or name not in _NULLABLE
        }
        try:
            return cls(**values)
        except TypeError:
            unknown = next(name for name in values if name not in cls._fields)
            raise TypeError(
                f"a request has no field {unknown!r}{did_you_mean(unknown, cls._fields)}"
            ) from None

    @property
    def items(self) -> Items:
        """The items beside the prompt, by modality; modalities without items are left out."""
        items: dict[Modality, Sequence[Item]] = {}
        if self.images:
            items[Modality.IMAGE] = self.images
        if self.videos:
            items[Modality.VIDEO] = self.videos
        if self.audios:
            items[Modality.AUDIO] = self.audios
        return items


class ClientRequest(Request):
    """A request with the fields of a client's body.

    An engine takes only what its settings let clients set; of other requests it is not asked.
    """

    __slots__ = ()


class RequestFields(TypedDict, total=False):
    """The fields of a `Request` as keyword arguments; None stands for the default."""

    messages: Sequence[Message] | None
    prompt: str | None
    prompt_token_ids: Iterable[int] | None
    images: Sequence[Image] | None
    videos: Sequence[Video] | None
    audios: Sequence[AudioLength] | None
    model: str | None
    add_special_tokens: bool
    add_generation_prompt: bool
    continue_final_message: bool
    chat_template_kwargs: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] | None
    reasoning_effort: str | None
    documents: Sequence[Mapping[str, str]] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    media_io_kwargs: Mapping[str, Any] | None
    truncate_prompt_tokens: int | None
    mm_hashes: Sequence[Any] | None
    cache_salt: str | None
    reads_cache: bool
    lora: Lora | None
    api_fields: Mapping[str, Any] | None
