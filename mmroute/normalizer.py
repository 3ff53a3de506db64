"""The request path: render, encode, count, place, expand."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mmroute.batch import Request, normalize_many
from mmroute.engines.vllm.identity import ImageIdentity, image_identity
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import InexactError, ModelError, Reason, invalid, shown
from mmroute.fast_paths import FastPaths, Stats
from mmroute.geometry import TokenIds
from mmroute.hashing.reuse import HashReuse
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.placement import Expansion
from mmroute.remote.settings import Remote
from mmroute.request import (
    Image,
    ImageSize,
    Lora,
    Message,
    RequestOptions,
    check_one_given,
    checked_images,
    integers,
    size_of,
    stored_size_of,
)
from mmroute.request_images import admit, images_of_parts
from mmroute.routing import Routing

if TYPE_CHECKING:
    from mmroute.remote.normalizer import RemoteNormalizer

__all__ = ["Normalizer"]


@dataclass(frozen=True, slots=True, eq=False)
class Normalizer:
    """Gives the token IDs an engine will hold for a request to one model.

    Immutable, and safe to share between threads.

    Attributes:
        model: what was resolved when it was loaded.
        links: permission to follow links to images; None to leave them alone.
        hash_reuse: keeps block hashes; None for none.
    """

    model: ResolvedModel
    links: ImageLinks | None = None
    hash_reuse: HashReuse | None = None
    _loaded_with: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        model = self.model
        return f"<Normalizer of {model.name}: {model.family.family}, {model.backend.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the model again."""
        if self._loaded_with is None:
            raise TypeError("only a Normalizer made by from_pretrained can be pickled")
        return _load, (self._loaded_with,)

    @overload
    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        *,
        backend: str = ...,
        model_id: str | None = ...,
        revision: str | None = ...,
        token: str | None = ...,
        links: ImageLinks | None = ...,
        self_check: bool = ...,
        fast_paths: FastPaths | None = ...,
        remote: None = None,
    ) -> Normalizer: ...

    @overload
    @classmethod
    def from_pretrained(
        cls, model: str | os.PathLike[str], *, remote: str | Remote
    ) -> RemoteNormalizer: ...

    @classmethod
    def from_pretrained(  # noqa: PLR0913 - where a model comes from, and how it is served
        cls,
        model: str | os.PathLike[str],
        *,
        backend: str = "vllm",
        model_id: str | None = None,
        revision: str | None = None,
        token: str | None = None,
        links: ImageLinks | None = None,
        self_check: bool = False,
        fast_paths: FastPaths | None = None,
        remote: str | Remote | None = None,
    ) -> Normalizer | RemoteNormalizer:
        """Load a model.

        Args:
            model: directory, hub name, or ``pixtral-12b-2409``, which needs no download.
            backend: the engine whose behaviour is matched; see `mmroute.engines.profile`.
            model_id: the engine's own model string, which its image identities cover; only
                needed if it is another than `model`.
            revision: hub branch, tag or commit.
            token: hub access token.
            links: permission to follow http and https links to images, which it takes time to
                do; without it, give the sizes of such images in `images`.
            self_check: try the loaded model on a few requests first, as ``mmroute doctor`` does.
            fast_paths: who encodes, and how much memory may go into what will be asked again;
                see `FastPaths`.
            remote: ask a server instead, ``mmroute serve`` or vLLM's own, by its URL or as
                `Remote`; `model` is the name it serves the model by, and everything else is its
                own business: no other argument goes with it. See docs/server.md.

        Raises:
            ModelError: the model cannot be loaded exactly; the message says what to do.

        A model directory is trusted: its chat template is a program that runs, sandboxed but
        unlimited in time and memory.
        """
        if remote is not None:
            others = (model_id, revision, token, links, fast_paths)
            if backend != "vllm" or self_check or any(other is not None for other in others):
                raise TypeError("with `remote` the server decides: no argument but `model` goes")
            from mmroute.remote.normalizer import connect  # noqa: PLC0415 - httpcore

            return connect(os.fspath(model), remote)
        if links is not None and not isinstance(links, ImageLinks):
            raise TypeError(f"links must be an ImageLinks, found {shown(links)}")
        if fast_paths is not None and not isinstance(fast_paths, FastPaths):
            raise TypeError(f"fast_paths must be a FastPaths, found {shown(fast_paths)}")
        from mmroute.model.resolve import resolve_model  # noqa: PLC0415 - jinja2, pydantic, tokenizers

        fast_paths = fast_paths or FastPaths()
        source: dict[str, Any] = {
            "model": os.fspath(model),
            "backend": backend,
            "model_id": model_id,
            "revision": revision,
            "token": token,
            "fast_paths": fast_paths,
        }
        normalizer = cls(
            resolve_model(**source),
            links,
            HashReuse(fast_paths.hash_cache_bytes) if fast_paths.hash_cache_bytes else None,
            {**source, "links": links},
        )
        if self_check:
            from mmroute.health.self_check import check_model  # noqa: PLC0415 - it imports this

            report = check_model(normalizer)
            for warning in report.warnings:
                warnings.warn(warning, stacklevel=2)
            if not report.healthy:
                raise ModelError(Reason.SELF_CHECK_FAILED, report.failures)
        return normalizer

    def normalize(  # noqa: PLR0913 - the fields of the engine's own request
        self,
        *,
        messages: Sequence[Message] | None = None,
        prompt: str | None = None,
        prompt_token_ids: Iterable[int] | None = None,
        images: Sequence[Image] | None = None,
        add_special_tokens: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        cache_salt: str | None = None,
        lora: Lora | None = None,
    ) -> Routing:
        """The token IDs of one request. Nothing a client put into it raises.

        Args:
            messages: OpenAI chat messages. A data URL carries its own image; ``{"type":
                "image"}`` parts, and links that are not followed, take `images` in order. Or:
            prompt: text, placeholders in it. Or:
            prompt_token_ids: the same as token IDs, not yet expanded.
            images: sizes (or files, see `mmroute.read_image`) of the other images, in the order
                of their placeholders.
            add_special_tokens: put BOS before text; the completions API does, chats do not.
            add_generation_prompt: end a chat with the assistant's header.
            continue_final_message: leave the last message open.
            chat_template_kwargs: variables for the chat template.
            tools: OpenAI tool definitions.
            mm_processor_kwargs: overrides for the image processor.
            cache_salt: what keeps tenants' caches apart; block hashes cover it.
            lora: the adapter that answers; block hashes cover it.

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
            cache_salt=cache_salt,
            lora=lora,
        )
        try:
            check_one_given(messages, prompt, prompt_token_ids)
            options.check()
            given = checked_images(images)
            self._check_modality(len(given))
            if messages is None:
                placed = admit(given, self.model.backend)
                ids = self._encode_prompt(prompt, prompt_token_ids, options)
            else:
                placed, ids = self._encode_chat(messages, given, options)
            expansion = self._expand(ids, [size_of(image) for image in placed], options)
            self._check_prompt(expansion.token_ids)
            identities = self._identities(placed, options)
        except InexactError as inexact:
            return Routing(reason=inexact.reason, message=str(inexact))
        except RecursionError:  # messages, tools and kwargs are JSON of any depth
            return Routing(
                reason=Reason.INVALID_REQUEST, message="the request is nested too deeply"
            )
        expansion.token_ids.setflags(write=False)
        ids.setflags(write=False)
        return Routing(
            placeholders=expansion.placeholders,
            image_identities=identities,
            lora=lora,
            cache_salt=cache_salt,
            _token_ids=expansion.token_ids,
            _unexpanded=ids,
            _reuse=self.hash_reuse,
        )

    def normalize_many(
        self, requests: Iterable[Request], *, threads: int | None = None
    ) -> Iterator[Routing]:
        """The answers to many requests, in their order, while they are read.

        Args:
            requests: the arguments of `normalize`, by name. With more than one thread some
                hundreds of them are read before the first answer: none may wait for one.
            threads: how many work at it; None for one on each core where Python has no global
                lock, and one where it has: there, give each core a process and a normalizer of
                its own, and each its share of the requests.

        Raises:
            ValueError: `threads` is below 1.

        >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
        >>> [len(routing.token_ids) for routing in normalizer.normalize_many([{"prompt": "Hi"}])]
        [1]
        """
        return normalize_many(self.normalize, requests, threads)

    def stats(self) -> Stats:
        """Who encodes, and what the caches have done since the model was loaded.

        Waits until the encoder is chosen, which may go on after `from_pretrained`.
        """
        return Stats(
            self.model.tokenizer.encoder_stats(),
            None if self.hash_reuse is None else self.hash_reuse.stats(),
        )

    def _encode_prompt(
        self,
        prompt: str | None,
        prompt_token_ids: Iterable[int] | None,
        options: RequestOptions,
    ) -> TokenIds:
        if prompt_token_ids is not None:
            return self._checked_ids(prompt_token_ids)
        return self._encode(prompt, options.add_special_tokens)

    def _encode_chat(
        self, messages: Sequence[Message], given: Sequence[Image], options: RequestOptions
    ) -> tuple[tuple[Image, ...], TokenIds]:
        """The images of a chat, and its prompt before they are expanded."""
        chat = parse_chat(messages, options)
        self._check_modality(len(chat.image_parts))
        images = images_of_parts(chat.image_parts, given, self.model.backend, self.links)
        stored = [stored_size_of(image) for image in images]
        rendered = self.model.chat.render(chat, stored, options)
        if isinstance(rendered, str):
            rendered = self._encode(rendered, options.add_special_tokens)
        return images, rendered

    def _check_modality(self, num_images: int) -> None:
        if num_images and self.model.images is None:
            raise InexactError(
                Reason.UNSUPPORTED_MODALITY,
                f"the engine takes no images for the family {self.model.family.family}",
            )

    def _identities(
        self, images: Sequence[Image], options: RequestOptions
    ) -> tuple[ImageIdentity | None, ...]:
        """How the engine calls each image; it gives the k-th name to the k-th placeholder."""
        kwargs, model_id = options.mm_processor_kwargs, self.model.model_id
        identities = tuple(
            [image_identity(i, mm_processor_kwargs=kwargs, model_id=model_id) for i in images]
        )
        named: dict[str, ImageSize] = {}
        for image, identity in zip(images, identities, strict=True):
            if identity is not None:
                size = size_of(image)
                first = named.setdefault(identity.value, size)
                if (first.width, first.height) != (size.width, size.height):
                    raise invalid(
                        f"the uuid {shown(identity.value)} names images of two sizes, {first} and "
                        f"{size}; the engine caches by it, and would reuse the first one's tokens"
                    )
        return identities

    def _encode(self, text: object, add_special_tokens: bool) -> TokenIds:
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

    def _checked_ids(self, given: object) -> TokenIds:
        ids = integers("prompt_token_ids", given)
        highest = self.model.max_token_id
        if ids and not (min(ids) >= 0 and max(ids) <= highest):
            position, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t <= highest)
            raise InexactError(
                Reason.TOKEN_OUT_OF_VOCABULARY,
                f"prompt_token_ids[{position}] is {shown(wrong)}; this model's IDs are 0 to "
                f"{highest}",
            )
        return np.array(ids, dtype=np.uint32)

    def _expand(
        self, ids: TokenIds, images: Sequence[ImageSize], options: RequestOptions
    ) -> Expansion:
        rules = self.model.images
        if not images or rules is None:
            return Expansion(ids, ())
        limit = max(self.model.backend.min_encoder_cache, rules.max_embeds)
        replacements = []
        total = 0
        geometry = rules.geometry
        if options.mm_processor_kwargs:
            geometry = geometry.with_overrides(options)
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


def _load(loaded_with: Mapping[str, Any]) -> Normalizer:
    loaded: Normalizer = Normalizer.from_pretrained(**loaded_with)
    return loaded
