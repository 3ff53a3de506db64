"""What is known of a model before the first request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmroute.chat import Chat
from mmroute.engines.profile import BackendProfile
from mmroute.geometry import Geometry
from mmroute.placement import Placement
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    from mmroute.model.files import JsonValue
    from mmroute.model.spec import FamilySpec

__all__ = ["ImageRules", "Origin", "ResolvedModel"]


@dataclass(frozen=True, slots=True)
class Origin:
    """One resolved value and where it was found.

    Attributes:
        name: what it is.
        value: as JSON.
        source: ``FILE:FIELD``, or how else it was had.
    """

    name: str
    value: JsonValue
    source: str


@dataclass(frozen=True, slots=True)
class ImageRules:
    """How the images of a request are counted and placed.

    Attributes:
        geometry: sizes to replacements.
        placement: replacements into the prompt.
        max_embeds: the most features one image has by the model's own configuration; the
            engine sizes its encoder cache by it.
    """

    geometry: Geometry
    placement: Placement
    max_embeds: int


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """All that is known of a model before the first request. Immutable.

    Attributes:
        name: the model as the caller named it.
        model_id: the engine's own model string, which its image identities cover.
        commit: the hub commit of the files; None for a directory.
        family: the matching spec.
        backend: the engine that is matched.
        tokenizer: loaded and checked.
        chat: renders messages.
        images: None if the engine takes only text for this family.
        max_model_len: tokens of the longest context.
        max_token_id: the largest ID the engine accepts.
        origins: every value above with its place.
    """

    name: str
    model_id: str
    commit: str | None
    family: FamilySpec
    backend: BackendProfile
    tokenizer: Tokenizer
    chat: Chat
    images: ImageRules | None
    max_model_len: int
    max_token_id: int
    origins: tuple[Origin, ...]
