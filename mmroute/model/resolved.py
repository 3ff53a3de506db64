"""What is known of a model before the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmroute.engines.hashes import Hashes
from mmroute.engines.settings import EngineSettings
from mmroute.geometry import AnyGeometry, ModelContext, Overrides, TokenIds
from mmroute.requests.items import IdentityFlag, IdentityForm, Modality

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.profile import EngineProfile
    from mmroute.families.spec import FamilySpec
    from mmroute.model_directory import JsonValue
    from mmroute.placement import Placement
    from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Origin:
    """One resolved value and where it was found.

    Attributes:
        name: the name of the value.
        value: the value, as JSON.
        source: ``FILE:FIELD``, or another way by which it was found.
    """

    name: str
    value: JsonValue
    source: str


@dataclass(frozen=True, slots=True)
class MediaRules:
    """How the items of one modality are counted, and what they replace.

    Attributes:
        geometry: makes replacements of items.
        overridden: the geometry under a request's overrides.
        target: the token IDs whose place an item takes, unless its replacement says otherwise.
        max_embeds: the number of features of the largest item with which the engine plans its
            encoder cache.
        max_items: the most items in one prompt.
        only_in_chats: whether the engine refuses items beside a prompt.
        identity: what the engine hashes of an item that has no name.
        unnamed: the arguments of requests that identities do not cover.
        identity_flag: what it hashes beside every identity; None for nothing.
    """

    geometry: AnyGeometry
    overridden: Callable[[Overrides], AnyGeometry]
    target: tuple[int, ...]
    max_embeds: int
    max_items: int
    only_in_chats: bool
    identity: IdentityForm
    unnamed: frozenset[str]
    identity_flag: IdentityFlag | None


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """All that is known of a model before the first request. Immutable.

    Attributes:
        name: the model as the caller named it.
        model_id: the engine's own model string, which its image identities cover.
        commit: the hub commit of the files; None for a directory.
        family: the matching spec.
        engine: the engine that is matched.
        tokenizer: the tokenizer, loaded and checked.
        chat: renders the messages of a request.
        media: the rules of each modality that the engine takes for this family.
        placement: puts replacements into the prompt.
        hashing: the engine's way to hash its prompts.
        encoder_cache: the number of features of the largest item that the engine is sure to take.
        settings: the settings that the engine was started with.
        max_model_len: the number of tokens of the longest context.
        max_token_id: the largest ID the engine accepts.
        origins: every value above with its place.
        context: what a geometry may know beside a request's items.
    """

    name: str
    model_id: str
    commit: str | None
    family: FamilySpec
    engine: EngineProfile
    tokenizer: Tokenizer
    chat: Chat
    media: Mapping[Modality, MediaRules]
    placement: Placement
    hashing: Hashes
    encoder_cache: int
    settings: EngineSettings
    max_model_len: int
    max_token_id: int
    origins: tuple[Origin, ...]
    context: ModelContext = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        context = ModelContext(
            self.max_model_len, self.encode_plain, self.engine.processor_cache_off
        )
        object.__setattr__(self, "context", context)

    def __repr__(self) -> str:
        return f"<ResolvedModel {self.name}: {self.family.family}, {self.engine.name}>"

    def encode_plain(self, text: str) -> TokenIds:
        """Token IDs of a text without special tokens around it, shape (n,)."""
        return self.tokenizer.encode(text, add_special_tokens=False)
