"""The resolved model, which holds everything that is computed before the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mmroute.chat import Chat
from mmroute.engine import Engine, EngineSettings
from mmroute.families.spec import FamilySpec
from mmroute.geometry import Geometry, ModelContext, Overrides
from mmroute.hashing.hashes import Hashes
from mmroute.model_directory import JsonValue
from mmroute.placement import Placement
from mmroute.requests.items import IdentityFlag, IdentityForm, Modality
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Origin:
    """One resolved value and its source."""

    name: str  # the name of the value
    value: JsonValue
    source: str  # `FILE:FIELD`, or a description of another source


@dataclass(frozen=True, slots=True)
class MediaRules:
    """The rules of one modality: counts, placeholders and limits."""

    geometry: Geometry  # the geometry, which makes the replacements of items
    overridden: Callable[[Overrides], Geometry]  # returns the geometry under a request's overrides
    # The token IDs of the placeholder, unless a replacement has a target of its own.
    target: tuple[int, ...]
    # The number of features of the largest item with which the engine plans its encoder cache.
    max_embeds: int
    max_items: int  # the most items in one prompt
    only_in_chats: bool  # whether the engine refuses items beside a prompt
    identity: IdentityForm  # the data that the engine hashes for an item without a uuid
    # A further value that the engine hashes with every item; None for none.
    identity_flag: IdentityFlag | None
    # The reason why no item is covered under the engine's settings; empty if they are.
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model with everything that is computed before the first request. Immutable."""

    name: str  # the model as the caller named it
    model_id: str  # the engine's model string, which its image identities cover
    commit: str | None  # the hub commit of the files; None for a directory
    family: FamilySpec  # the matching spec
    engine: Engine  # the engine that is matched
    tokenizer: Tokenizer  # the tokenizer, loaded and checked
    chat: Chat  # the chat renderer
    # The rules of each modality that the engine takes for this family.
    media: Mapping[Modality, MediaRules]
    # The modalities that the engine takes, or may take, and that have no rules; each with what in
    # the files is not covered, or an empty text.
    uncovered: Mapping[Modality, str]
    placement: Placement  # the rule that puts replacements into the prompt
    hashing: Hashes  # the functions by which the engine hashes prompts, with its settings
    encoder_cache: int  # the number of features of the largest item that the engine is sure to take
    max_model_len: int  # the number of tokens of the longest context
    vocab_size: int  # the number of token IDs that the engine's model has; 0 if the spec has none
    values: tuple[Origin, ...]  # the values that were read, and their sources
    # The values that a geometry may use besides a request's items.
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
