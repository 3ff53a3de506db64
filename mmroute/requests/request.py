"""A request: its prompt in one of three forms, its items, and the options of the engine's API."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, SupportsIndex, TypeAlias, TypedDict

from mmroute.errors import did_you_mean, invalid, json_type, quoted
from mmroute.requests.items import (
    AudioLength,
    Image,
    ImageFile,
    ImageSize,
    Item,
    Items,
    Modality,
    Video,
    VideoFile,
    VideoSize,
    check_items,
    check_text,
)

_MAX_CACHE_SALT: Final = 128
_NOT_IN_CACHE_SALT: Final = frozenset("@/\\\0")

_MODALITIES: Final = frozenset(Modality)
_NO_ITEMS: Final = ()
NO_KWARGS: Final[Mapping[str, Any]] = {}
"""The default of fields that hold keyword arguments; a field that is this object was not sent."""
_FLAGS: Final = (
    "add_special_tokens", "add_generation_prompt", "continue_final_message", "reads_cache",
)  # fmt: skip
_KWARGS: Final = (
    "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "api_fields",
)  # fmt: skip
# Fields that a client may send as null instead of leaving them out.
_NULLABLE: Final = frozenset({"images", "videos", "audios", *_KWARGS, "mm_hashes"})

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
    images: Sequence[Image] = _NO_ITEMS
    videos: Sequence[Video] = _NO_ITEMS
    audios: Sequence[AudioLength] = _NO_ITEMS
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
    mm_hashes: Sequence[Any] = _NO_ITEMS
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

    def check(self) -> None:
        """Check all fields except those that are checked later, while they are read.

        These are `messages`, `tools`, `reasoning_effort`, `documents`, `prompt` and
        `prompt_token_ids`.

        Raises:
            InexactError: `invalid_request`, naming the field.
        """
        chat, text, ids = self.messages, self.prompt, self.prompt_token_ids
        num_forms = (chat is not None) + (text is not None) + (ids is not None)
        if num_forms != 1:
            raise invalid(
                "give exactly one of messages, prompt and prompt_token_ids, found "
                f"{num_forms} of them"
            )
        if self.images is not _NO_ITEMS:
            check_items("images", self.images, (ImageSize, ImageFile))
        if self.videos is not _NO_ITEMS:
            check_items("videos", self.videos, (VideoSize, VideoFile))
        if self.audios is not _NO_ITEMS:
            check_items("audios", self.audios, (AudioLength,))
        if not all(map(operator.is_, self[_FIRST_OPTION:], _DEFAULT_OPTIONS)):
            self._check_options()

    def check_json(self) -> None:
        """Refuse a field that has a value which is not JSON, such as a numpy array.

        It is called only after reading the request raised an error, because it takes as long as
        writing the request.

        Raises:
            InexactError: `invalid_request`, naming the field.
        """
        import json  # rarely needed

        for name in _JSON_FIELDS:
            try:
                json.dumps(getattr(self, name))
            except (TypeError, ValueError, RecursionError) as error:
                raise invalid(f"{name} cannot be written as JSON: {error}") from error

    def _check_options(self) -> None:
        for name in _FLAGS:
            if not isinstance(flag := getattr(self, name), bool):
                raise invalid(f"{name} must be true or false, found {quoted(flag)}")
        for name in _KWARGS:
            if (kwargs := getattr(self, name)) or type(kwargs) is not dict:
                _check_object(name, kwargs)
        kept = self.truncate_prompt_tokens
        if kept is not None and (type(kept) is not int or kept < -1):
            raise invalid(f"truncate_prompt_tokens must be -1 or more, found {quoted(kept)}")
        if self.media_io_kwargs or self.mm_hashes is not _NO_ITEMS or self.lora is not None:
            _check_media_io(self.media_io_kwargs)
            _check_mm_hashes(self.mm_hashes)
            _check_lora(self.lora)


_FIRST_OPTION: Final = Request._fields.index("add_special_tokens")
_JSON_FIELDS: Final = tuple(
    name
    for name in Request._fields
    if name not in ("prompt_token_ids", "images", "videos", "audios", "lora")
)
_DEFAULT_OPTIONS: Final = tuple(Request._field_defaults.values())[_FIRST_OPTION:]


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


def lora_of(loras: Mapping[str, str], name: str | None) -> Lora | None:
    """The adapter that a request names as its `model`; None if that is no adapter."""
    path = loras.get(name or "")
    return None if path is None else Lora(name or "", path)


def integers(name: str, values: object) -> list[int]:
    """The list of ints of any iterable of integers, such as a numpy array."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise invalid(f"{name} must be a list of integers, found {json_type(values)}")
    try:
        listed = list(values)
        if set(map(type, listed)) <= {int}:
            return listed
        for index, value in enumerate(listed):
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise invalid(f"{name}[{index}] must be an integer, found {quoted(value)}")
        return list(map(operator.index, listed))
    except TypeError as error:  # an array of zero or two dimensions
        raise invalid(f"{name} must be one flat list of integers: {error}") from error


def _check_object(name: str, kwargs: object) -> None:
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise invalid(f"{name} must be an object, found {quoted(kwargs)}")


def _check_mm_hashes(entries: object) -> None:
    if not isinstance(entries, list | tuple):
        raise invalid(f"mm_hashes must be a list, found {quoted(entries)}")


def _check_media_io(kwargs_by_modality: Mapping[str, object]) -> None:
    for name, kwargs in kwargs_by_modality.items():
        if name not in _MODALITIES or not isinstance(kwargs, Mapping):
            raise invalid(
                f"media_io_kwargs must have objects by modality ({', '.join(Modality)}), found "
                f"{quoted(name)}: {quoted(kwargs)}"
            )


def check_cache_salt(salt: object) -> None:
    """Check a cache salt."""
    if salt is None:
        return
    if not isinstance(salt, str) or not 1 <= len(salt) <= _MAX_CACHE_SALT:
        raise invalid(
            f"cache_salt must be a text of 1 to {_MAX_CACHE_SALT} characters, found {quoted(salt)}"
        )
    if not _NOT_IN_CACHE_SALT.isdisjoint(salt):
        raise invalid(f"cache_salt must not contain @, /, \\ or NUL, found {quoted(salt)}")
    check_text("cache_salt", salt)


def _check_lora(lora: object) -> None:
    if lora is None:
        return
    if not isinstance(lora, Lora):
        raise invalid(f"lora must be a Lora, found {quoted(lora)}")
    for name, value in (("name", lora.name), ("path", lora.path)):
        if not isinstance(value, str) or not value:
            raise invalid(f"lora.{name} must be a text that is not empty, found {quoted(value)}")
        check_text(f"lora.{name}", value)
