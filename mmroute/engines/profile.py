"""Engine profiles: what one engine does in one range of versions, whatever the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mmroute.engines.frontends import Frontend
from mmroute.engines.hashes import Hashes
from mmroute.requests.items import Identity, IdentityForm, Item, Modality

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.settings import EngineSettings
    from mmroute.families.spec import FamilySpec
    from mmroute.geometry import AnyGeometry, Overrides
    from mmroute.geometry.frame_sampling import Frames
    from mmroute.model_directory import ModelFiles
    from mmroute.requests.request import Request
    from mmroute.tokenizers import Tokenizer


class Identify(Protocol):
    """How the engine tells one item from others."""

    def __call__(
        self,
        item: Item,
        /,
        *,
        overrides: Overrides,
        frames: Frames | None,
        model_id: str,
        form: IdentityForm,
        flags: Mapping[str, bool] = ...,
        algorithm: str = ...,
    ) -> Identity | None:
        """The identity of an item; None if too little of it is known.

        Args:
            item: image, video or audio.
            overrides: the request's overrides for the item's modality.
            frames: the frames of a video's file that are decoded.
            model_id: the model string the engine was started with.
            form: what the engine hashes for the model.
            flags: what it hashes beside the identity.
            algorithm: the hash algorithm.

        Raises:
            InexactError: the engine's own identity is not reproducible.
        """


class ChatSource(NamedTuple):
    """What a model's chat renderer is made of.

    Attributes:
        files: the model's files.
        family: the spec of its family.
        tokenizer: the model's tokenizer.
        geometries: what counts and writes its items.
        settings: the settings that the engine was started with.
    """

    files: ModelFiles
    family: FamilySpec
    tokenizer: Tokenizer
    geometries: Mapping[Modality, AnyGeometry]
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What one engine does whatever the model. Another version is a `replace` of its neighbour.

    Attributes:
        name: the name that a caller gives.
        version: what the profile was checked on.
        era: the versions between which nothing that can be seen changed.
        prompts: the era of prompts: profiles with the same one make the same token IDs of texts
            and chats, whatever else they do otherwise.
        proved: versions whose own code gave these answers.
        read: other releases of the era. Their own code was not run.
        max_items: items of one modality in one prompt; more are refused.
        max_image_pixels: the most pixels of one image or frame; a larger one is refused.
        max_decoded_bytes: the most bytes that all items of a request may take when decoded.
        bytes_per_unit: what counts for that: of each pixel of an image or of a decoded frame, and
            of each sample of audio.
        max_audio_seconds: the most seconds of one recording.
        max_audio_bytes: the most bytes of one recording, all its channels decoded.
        min_encoder_cache: features of one item that the engine's encoder cache holds even
            if no item of the model needs as many by its own configuration.
        applies_exif_orientation: whether an image is counted as it is shown, or as it is
            stored in its file.
        load_chat: makes a model's chat renderer. Raises `ModelError`: its chat template cannot be
            loaded.
        identify: names items.
        longest_context: gives a model's longest context; see `mmroute.engines.vllm.context`.
        hashing: the engine's way to hash prompts, by its defaults.
        adds_special_tokens: whether to the text of a prompt, which may have items beside it.
        check_names: refuses names that it confuses, by the named items of a request.
        check_cache_salt: refuses what its API does.
        with_defaults: puts its settings into a request that does not say otherwise, which a model's
            chat renderer will read. Raises `InexactError`: a server of these settings refuses it.
        processor_kwargs: what reaches the processor of its own ``mm_processor_kwargs``, and of
            a request's.
        why_refused: why models of some architectures are not covered, and what to do instead;
            empty where nothing is known of them.
        only_checked_families: whether families are refused that were not checked on it.
        renders: whether its server has the render routes that ``mmroute serve`` speaks.
        read_mm_hash: what it calls an image by an entry of the request's `mm_hashes`; None where
            it does not read them.
        limits: the most items of a modality in one prompt, where it is not `max_items`.
        media_domains: hosts of links that it follows; empty for all.
        lora_in_identities: identities of requests to a LoRA adapter begin with its name.
        processor_cache_off: whether no processed items are kept.
        frontend: the API server in front of the engine.
        tokenizer_as_written: whether tokenizer.json is taken as it is, and no class rebuilds it.
        without_media: why no images, videos and audio are covered; empty where they are.
    """

    name: str
    version: str
    era: str
    prompts: str
    proved: frozenset[str]
    max_items: int
    max_image_pixels: int
    max_decoded_bytes: int
    bytes_per_unit: Mapping[Modality, int]
    max_audio_seconds: int
    max_audio_bytes: int
    min_encoder_cache: int
    applies_exif_orientation: bool
    load_chat: Callable[[ChatSource], Chat]
    identify: Identify
    longest_context: Callable[..., int]
    hashing: Hashes
    adds_special_tokens: Callable[[Tokenizer, Request, bool], bool]
    check_names: Callable[[Sequence[tuple[Item, Identity]]], None]
    check_cache_salt: Callable[[object], None]
    with_defaults: Callable[[Request, EngineSettings, Chat], Request]
    processor_kwargs: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
    why_refused: Callable[[Sequence[object]], str]
    read: frozenset[str] = frozenset()
    only_checked_families: bool = False
    renders: bool = True
    read_mm_hash: Callable[[object, IdentityForm], Identity | None] | None = None
    limits: Mapping[Modality, int] = field(default_factory=dict)
    media_domains: frozenset[str] = frozenset()
    lora_in_identities: bool = False
    processor_cache_off: bool = False
    frontend: Frontend = Frontend.PYTHON
    tokenizer_as_written: bool = False
    without_media: str = ""

    @property
    def backend(self) -> str:
        """The name by which `mmroute.engines.known.find_engine` gives this version."""
        return f"{self.name}=={self.version}"

    @property
    def label(self) -> str:
        """The engine, its version, and its frontend where that is not the usual one."""
        plain = f"{self.name} {self.version}"
        if self.frontend is Frontend.PYTHON:
            return plain
        return f"{plain}, {self.frontend} frontend"

    def most(self, modality: Modality) -> int:
        """Items of a modality in one prompt; more are refused."""
        return self.limits.get(modality, self.max_items)

    def under(self, settings: EngineSettings) -> EngineProfile:
        """The engine as it was started with these settings."""
        changes: dict[str, Any] = {
            "min_encoder_cache": settings.max_num_batched_tokens,
            "max_image_pixels": settings.max_image_pixels,
            "max_decoded_bytes": settings.max_decoded_bytes,
            "limits": {Modality(name): count for name, count in settings.limits.items()},
            "media_domains": settings.media_domains,
            "lora_in_identities": settings.lora_in_identities,
            "processor_cache_off": settings.processor_cache_off,
        }
        if settings.identity_algorithm != "blake3":
            changes["identify"] = partial(self.identify, algorithm=settings.identity_algorithm)
        return replace(self, **{name: value for name, value in changes.items() if value})
