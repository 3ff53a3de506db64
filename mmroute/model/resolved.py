"""The resolved model, which holds everything that is computed before the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmroute.geometry import ModelContext, Overrides
from mmroute.requests.items import IdentityFlag, IdentityForm, Modality
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engine import Engine, EngineSettings
    from mmroute.families.spec import FamilySpec
    from mmroute.geometry import Geometry
    from mmroute.hashing.hashes import Hashes
    from mmroute.model_directory import JsonValue
    from mmroute.placement import Placement
    from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Origin:
    """One resolved value and its source.

    Attributes:
        name: the name of the value.
        value: the value, as JSON.
        source: ``FILE:FIELD``, or a description of another source.
    """

    name: str
    value: JsonValue
    source: str


@dataclass(frozen=True, slots=True)
class MediaRules:
    """The rules of one modality: counts, placeholders and limits.

    Attributes:
        geometry: the geometry, which makes the replacements of items.
        overridden: returns the geometry under a request's overrides.
        target: the token IDs of the placeholder, unless a replacement has a target of its own.
        max_embeds: the number of features of the largest item with which the engine plans its
            encoder cache.
        max_items: the most items in one prompt.
        only_in_chats: whether the engine refuses items beside a prompt.
        identity: the data that the engine hashes for an item without a uuid.
        identity_flag: a further value that the engine hashes with every item; None for none.
        refused: the reason why no item is covered under the engine's settings; empty if they are.
    """

    geometry: Geometry
    overridden: Callable[[Overrides], Geometry]
    target: tuple[int, ...]
    max_embeds: int
    max_items: int
    only_in_chats: bool
    identity: IdentityForm
    identity_flag: IdentityFlag | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model with everything that is computed before the first request. Immutable.

    Attributes:
        name: the model as the caller named it.
        model_id: the engine's model string, which its image identities cover.
        commit: the hub commit of the files; None for a directory.
        family: the matching spec.
        engine: the engine that is matched.
        tokenizer: the tokenizer, loaded and checked.
        chat: the chat renderer.
        media: the rules of each modality that the engine takes for this family.
        uncovered: the modalities that the engine takes, or may take, and that have no rules; each
            with what in the files is not covered, or an empty text.
        placement: the rule that puts replacements into the prompt.
        hashing: the functions by which the engine hashes prompts, with its settings.
        encoder_cache: the number of features of the largest item that the engine is sure to take.
        max_model_len: the number of tokens of the longest context.
        vocab_size: the number of token IDs that the engine's model has; 0 if the spec has none.
        values: the values that were read, and their sources.
        context: the values that a geometry may use besides a request's items.
    """

    name: str
    model_id: str
    commit: str | None
    family: FamilySpec
    engine: Engine
    tokenizer: Tokenizer
    chat: Chat
    media: Mapping[Modality, MediaRules]
    uncovered: Mapping[Modality, str]
    placement: Placement
    hashing: Hashes
    encoder_cache: int
    max_model_len: int
    vocab_size: int
    values: tuple[Origin, ...]
    context: ModelContext = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        context = ModelContext(
            self.max_model_len, self.encode_plain, self.engine.limits.processor_cache_off
        )
        object.__setattr__(self, "context", context)

    def __repr__(self) -> str:
        return f"<ResolvedModel {self.name}: {self.family.family}, {self.engine.release.name}>"

    @property
    def settings(self) -> EngineSettings:
        """The settings with which the engine was started."""
        return self.engine.settings

    @property
    def max_token_id(self) -> int:
        """The largest token ID that the engine accepts."""
        return max(self.tokenizer.max_token_id, self.vocab_size - 1)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The values that were resolved, and their sources."""
        source = "the larger of tokenizer and vocab_size"
        return *self.values, Origin("max_token_id", self.max_token_id, source)

    def encode_plain(self, text: str) -> TokenIds:
        """Token IDs of a text without special tokens around it, shape (n,)."""
        return self.tokenizer.encode(text, add_special_tokens=False)
