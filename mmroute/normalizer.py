"""The request path: render, encode, count, place, expand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mmroute.errors import InexactError, Reason, invalid, shown
from mmroute.geometry import TokenIds
from mmroute.placement import Expansion, PlaceholderRange
from mmroute.request import ImageSize, Message, RequestOptions, image_sizes, integers
from mmroute.resolve import ResolvedModel, resolve_model

__all__ = ["Normalizer", "Routing"]


_BYTES_PER_PIXEL: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """The answer to one request: exact token IDs, or the reason why there are none.

    Attributes:
        placeholders: where each image stands, by position; empty if not exact.
        reason: None if exact.
        message: what was found, and what to do; empty if exact.
    """

    placeholders: tuple[PlaceholderRange, ...] = ()
    reason: Reason | None = None
    message: str = ""
    _token_ids: TokenIds | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """Whether these are the engine's token IDs, one for one."""
        return self._token_ids is not None

    @property
    def token_ids(self) -> TokenIds:
        """The expanded prompt as the engine stores it: contiguous uint32, read-only, (n,).

        Raises:
            InexactError: the request is inexact; there are no IDs that could be mistaken for exact.
        """
        if self._token_ids is None:
            raise InexactError(self.reason or Reason.INVALID_REQUEST, self.message)
        return self._token_ids


@dataclass(frozen=True, slots=True, eq=False)
class Normalizer:
    """Gives the token IDs an engine will hold for a request to one model.

    Immutable, and safe to share between threads.

    Attributes:
        model: what was resolved when it was loaded.
    """

    model: ResolvedModel

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        *,
        backend: str = "vllm",
        model_id: str | None = None,
        revision: str | None = None,
        token: str | None = None,
    ) -> Normalizer:
        """Load a model.

        Args:
            model: directory, hub name, or ``pixtral-12b-2409``, which needs no download.
            backend: the engine whose behaviour is matched; see `mmroute.backends`.
            model_id: the engine's own model string, if it is another than `model`.
            revision: hub branch, tag or commit.
            token: hub access token.

        Raises:
            ModelError: the model cannot be loaded exactly; the message says what to do.

        A model directory is trusted: its chat template is a program that runs, sandboxed but
        unlimited in time and memory.
        """
        return cls(
            resolve_model(
                os.fspath(model),
                backend=backend,
                model_id=model_id,
                revision=revision,
                token=token,
            )
        )

    def normalize(  # noqa: PLR0913 - the fields of the engine's own request
        self,
        *,
        messages: Sequence[Message] | None = None,
        prompt: str | None = None,
        prompt_token_ids: Iterable[int] | None = None,
        images: Sequence[ImageSize] | None = None,
        add_special_tokens: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> Routing:
        """The token IDs of one request. Nothing a client put into it raises.

        Args:
            messages: OpenAI chat messages; ``{"type": "image"}`` parts, and links, take
                `images` in order. Or:
            prompt: text, placeholders in it. Or:
            prompt_token_ids: the same as token IDs, not yet expanded.
            images: sizes of all images, in the order of their placeholders.
            add_special_tokens: put BOS before text; the completions API does, chats do not.
            add_generation_prompt: end a chat with the assistant's header.
            continue_final_message: leave the last message open.
            chat_template_kwargs: variables for the chat template.
            tools: OpenAI tool definitions.
            mm_processor_kwargs: overrides for the image processor.

        >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
        >>> routing = normalizer.normalize(
        ...     messages=[{"role": "user", "content": [{"type": "image"}]}],
        ...     images=[ImageSize(32, 16)],
        ... )
        >>> routing.token_ids.tolist()
        [1, 3, 10, 10, 13, 4]
        """
        options = RequestOptions(
            add_special_tokens=add_special_tokens,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs={} if chat_template_kwargs is None else chat_template_kwargs,
            tools=tools,
            mm_processor_kwargs={} if mm_processor_kwargs is None else mm_processor_kwargs,
        )
        try:
            _check_one_given(messages, prompt, prompt_token_ids)
            options.check()
            images = image_sizes(images)
            self._check_limits(images)
            ids, placed = self._unexpanded(messages, prompt, prompt_token_ids, images, options)
            expansion = self._expand(ids, placed, options)
            self._check_prompt(expansion.token_ids)
        except InexactError as inexact:
            return Routing(reason=inexact.reason, message=str(inexact))
        except RecursionError:  # messages, tools and kwargs are JSON of any depth
            return Routing(
                reason=Reason.INVALID_REQUEST, message="the request is nested too deeply"
            )
        expansion.token_ids.setflags(write=False)
        return Routing(placeholders=expansion.placeholders, _token_ids=expansion.token_ids)

    def _check_limits(self, images: Sequence[ImageSize]) -> None:
        backend = self.model.backend
        if images and self.model.images is None:
            raise InexactError(
                Reason.UNSUPPORTED_MODALITY,
                f"the engine takes no images for the family {self.model.family.family}",
            )
        if len(images) > backend.max_images:
            raise InexactError(
                Reason.TOO_MANY_IMAGES,
                f"{len(images)} images; the engine takes at most {backend.max_images} in one "
                "prompt",
            )
        for image in images:
            if image.width * image.height > backend.max_image_pixels:
                raise InexactError(
                    Reason.IMAGE_REFUSED,
                    f"the engine decodes no image of more than {backend.max_image_pixels} pixels, "
                    f"found {image}",
                )
        decoded = sum(image.width * image.height for image in images) * _BYTES_PER_PIXEL
        if decoded > backend.max_decoded_bytes:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"the engine decodes at most {backend.max_decoded_bytes} bytes of images for one "
                f"request; these have {decoded}",
            )

    def _unexpanded(
        self,
        messages: Sequence[Message] | None,
        prompt: str | None,
        prompt_token_ids: Iterable[int] | None,
        images: Sequence[ImageSize],
        options: RequestOptions,
    ) -> tuple[Sequence[int], Sequence[ImageSize]]:
        """The prompt before its images are expanded, and the images in prompt order."""
        if prompt_token_ids is not None:
            return self._checked_ids(prompt_token_ids), images
        if messages is None:
            return self._encode(prompt, options.add_special_tokens), images
        rendered = self.model.chat.render(messages, images, options)
        if isinstance(rendered.prompt, list):
            return rendered.prompt, rendered.images
        return self._encode(rendered.prompt, options.add_special_tokens), rendered.images

    def _encode(self, text: object, add_special_tokens: bool) -> list[int]:
        if not isinstance(text, str):
            raise invalid(
                f"prompt must be a string, found {type(text).__name__}; token IDs go into "
                "prompt_token_ids"
            )
        limit = self.model.max_model_len * self.model.tokenizer.max_chars_per_token
        if len(text) > limit:
            raise InexactError(
                Reason.PROMPT_TOO_LONG,
                f"the prompt has {len(text)} characters; more than {limit} cannot fit the context "
                f"of {self.model.max_model_len} tokens",
            )
        try:
            return self.model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except ValueError as error:
            raise invalid(f"the prompt cannot be encoded: {error}") from error

    def _checked_ids(self, given: object) -> list[int]:
        ids = integers("prompt_token_ids", given)
        highest = self.model.max_token_id
        if ids and not (min(ids) >= 0 and max(ids) <= highest):
            position, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t <= highest)
            raise InexactError(
                Reason.TOKEN_OUT_OF_VOCABULARY,
                f"prompt_token_ids[{position}] is {shown(wrong)}; this model's IDs are 0 to "
                f"{highest}",
            )
        return ids

    def _expand(
        self, ids: Sequence[int], images: Sequence[ImageSize], options: RequestOptions
    ) -> Expansion:
        rules = self.model.images
        if not images or rules is None:
            return Expansion(np.array(ids, dtype=np.uint32), ())
        limit = max(self.model.backend.min_encoder_cache, rules.max_embeds)
        replacements = []
        total = 0
        geometry = rules.geometry.with_overrides(options)
        for image, replacement in zip(images, geometry.replacements(images), strict=True):
            if replacement.num_embeds > limit:
                raise InexactError(
                    Reason.ITEM_TOO_LARGE,
                    f"an image of {image} has {replacement.num_embeds} features; the engine's "
                    f"encoder cache is sure to hold {limit}",
                )
            total += replacement.num_embeds
            if total >= self.model.max_model_len:
                raise self._too_long(total, "images alone give")
            replacements.append(replacement)
        return rules.placement.expand(ids, replacements)

    def _check_prompt(self, token_ids: TokenIds) -> None:
        if not len(token_ids):
            raise InexactError(
                Reason.EMPTY_PROMPT, "the prompt has no token; the engine refuses it"
            )
        if len(token_ids) >= self.model.max_model_len:
            raise self._too_long(len(token_ids), "expanded prompt has")

    def _too_long(self, length: int, what: str) -> InexactError:
        return InexactError(
            Reason.PROMPT_TOO_LONG,
            f"the {what} {length} tokens; the context of {self.model.max_model_len} must also "
            "hold one of the answer",
        )


def _check_one_given(*prompts: object) -> None:
    if sum(given is not None for given in prompts) != 1:
        raise invalid("give exactly one of messages, prompt and prompt_token_ids")
