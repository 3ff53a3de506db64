"""Engine profiles: the behaviour of one engine in one range of versions, for all models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mmroute.engines.frontends import Frontend
from mmroute.engines.hashes import Hashes
from mmroute.requests.items import Identity, IdentityForm, Item, Items, Modality

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.settings import EngineSettings
    from mmroute.families.spec import FamilySpec
    from mmroute.geometry import Geometry, Overrides
    from mmroute.geometry.frame_sampling import Frames
    from mmroute.model_directory import ModelFiles
    from mmroute.requests.request import Request
    from mmroute.reuse.fast_paths import FastPaths
    from mmroute.tokenizers import Tokenizer


class Identify(Protocol):
    """The function by which an engine computes the identity of an item."""

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
        """The identity of an item; None if it cannot be computed.

        Args:
            item: the image, video or audio.
            overrides: the request's overrides. Those of readers are by modality.
            frames: the frames of a video's file that are decoded; None for other items.
            model_id: the engine's model string.
            form: the data that the engine hashes for this model.
            flags: further values that the engine hashes with the item.
            algorithm: the hash algorithm.

        Raises:
            InexactError: the engine's own identity is not reproducible.
        """


class ChatSource(NamedTuple):
    """The parts of a model from which its chat renderer is made.

    Attributes:
        files: the model's files.
        family: the spec of the model's family.
        tokenizer: the model's tokenizer.
        geometries: the geometries of its modalities.
        settings: the settings with which the engine was started.
    """

    files: ModelFiles
    family: FamilySpec
    tokenizer: Tokenizer
    geometries: Mapping[Modality, Geometry]
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """The behaviour of an engine. Another version's profile is a `replace` of its neighbour.

    Attributes:
        name: the engine's name, as in ``backend``.
        version: the version on which the profile was checked.
        era: the era, which is a range of versions between which nothing observable changed.
        prompts: the era of prompts. Profiles with the same one make the same token IDs of texts and
            chats; they may differ in everything else.
        proved: the versions whose own code gave these answers.
        read: the other releases of the era, whose code was read and not run.
        max_items: the most items of one modality in one prompt.
        max_image_pixels: the most pixels of one image or frame.
        max_decoded_bytes: the most bytes that all items of a request may take when decoded.
        bytes_per_unit: the decoded bytes of one pixel of an image or frame, and of one sample of
            audio, by modality.
        max_audio_seconds: the most seconds of one recording.
        max_audio_bytes: the most bytes of one recording, with all channels decoded.
        min_encoder_cache: the number of features of one item that the engine's encoder cache holds
            for every model.
        applies_exif_orientation: whether an image is counted as it is shown, and not as it is
            stored in its file.
        load_chat: returns a model's chat renderer. It raises `ModelError` if the chat template
            cannot be loaded.
        identify: computes the identity of an item.
        hashing: the functions by which the engine hashes prompts, with its default settings.
        adds_special_tokens: returns whether special tokens are added to the text of a prompt. Its
            last argument is whether the prompt has items.
        check_names: raises `InexactError` for uuids of a request that the engine refuses or mixes
            up. Its arguments are the items with their identities, all items of the request, and
            the form of identities by modality.
        check_cache_salt: raises `InexactError` for a cache salt that the engine's API refuses.
        with_defaults: puts the defaults of the settings into a request. Raises `InexactError` if a
            server with these settings refuses the request.
        processor_kwargs: merges the settings' ``mm_processor_kwargs`` with those of a request, into
            those that reach the processor.
        why_refused: returns why a model of these architectures is not covered, and what to do
            instead; empty if there is no entry for them.
        only_checked_families: whether families that were not checked on this engine are refused.
        renders: whether the engine's server has the render routes that ``mmroute serve`` has.
        takes_metadata: whether its generate route takes metadata of items in place of pixels.
        read_mm_hash: returns the identity for an entry of the request's `mm_hashes`; None if the
            engine does not read them. One that reads them takes no uuid in a chat.
        limits: the most items of a modality in one prompt, where it differs from `max_items`.
        media_domains: the hosts of links that the engine follows; empty for all.
        local_media_path: the directory below which the engine reads files of ``file:`` links; empty
            if it refuses such links, None if it is not known what it does.
        lora_in_identities: whether identities of requests to a LoRA adapter begin with its name.
        processor_cache_off: whether the engine keeps no processed items.
        frontend: the API server in front of the engine.
        load_tokenizer: loads a model's tokenizer; None for the engine's classes, which rebuild
            what tokenizer.json says.
        as_served: returns the family as the frontend takes it, by the model's files, the version
            and the model string; None if the family's spec holds without change.
        without_media: the reason why media that a family lacks are refused; empty if the engine
            does not take them.
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
    hashing: Hashes
    adds_special_tokens: Callable[[Tokenizer, Request, bool], bool]
    check_names: Callable[
        [Sequence[tuple[Item, Identity]], Items, Mapping[Modality, IdentityForm]], None
    ]
    check_cache_salt: Callable[[object], None]
    with_defaults: Callable[[Request, EngineSettings, Chat], Request]
    processor_kwargs: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
    why_refused: Callable[[Sequence[object]], str]
    read: frozenset[str] = frozenset()
    only_checked_families: bool = False
    renders: bool = True
    takes_metadata: bool = False
    read_mm_hash: Callable[[object, IdentityForm], Identity | None] | None = None
    limits: Mapping[Modality, int] = field(default_factory=dict)
    media_domains: frozenset[str] = frozenset()
    local_media_path: str | None = None
    lora_in_identities: bool = False
    processor_cache_off: bool = False
    frontend: Frontend = Frontend.PYTHON
    load_tokenizer: Callable[[ModelFiles, FastPaths], Tokenizer] | None = None
    as_served: Callable[[FamilySpec, ModelFiles, str, str], FamilySpec] | None = None
    without_media: str = ""

    @property
    def backend(self) -> str:
        """The name by which `mmroute.engines.known.find_engine` finds this version."""
        return f"{self.name}=={self.version}"

    @property
    def label(self) -> str:
        """The engine and its version, and the frontend if it is not the Python one."""
        plain = f"{self.name} {self.version}"
        if self.frontend is Frontend.PYTHON:
            return plain
        return f"{plain}, {self.frontend} frontend"

    def most(self, modality: Modality) -> int:
        """The most items of a modality in one prompt."""
        return self.limits.get(modality, self.max_items)

    def under(self, settings: EngineSettings) -> EngineProfile:
        """The profile of the engine with these settings."""
        changes: dict[str, Any] = {
            "min_encoder_cache": settings.max_num_batched_tokens,
            "max_image_pixels": settings.max_image_pixels,
            "max_decoded_bytes": settings.max_decoded_bytes,
            "limits": {Modality(name): count for name, count in settings.limits.items()},
            "media_domains": settings.media_domains,
            "local_media_path": self.local_media_path is not None and settings.local_media_path,
            "lora_in_identities": settings.lora_in_identities,
            "processor_cache_off": settings.processor_cache_off,
        }
        if settings.identity_algorithm != "blake3":
            changes["identify"] = partial(self.identify, algorithm=settings.identity_algorithm)
        return replace(self, **{name: value for name, value in changes.items() if value})
