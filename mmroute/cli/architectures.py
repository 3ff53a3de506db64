"""The support for every multimodal architecture: exact, text only, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mmroute.engines.vllm.architectures import Refusal, register
from mmroute.families.matching import known_families
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import FieldRef

_DECLARED: Final = FieldRef.parse("config.json:architectures")


class State(StrEnum):
    """The support for the models of an architecture."""

    EXACT = "exact"
    TEXT_ONLY = "text only"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture."""

    name: str  # the name in a model's `config.json`
    families: tuple[FamilySpec, ...]  # the family specs for its models; none if it is refused
    refusal: Refusal | None = None  # the reason why it is refused; None if it is not

    @property
    def state(self) -> State:
        """Exact if one of its families takes items of any modality."""
        if not self.families:
            return State.REFUSED
        return State.EXACT if any(spec.media for spec in self.families) else State.TEXT_ONLY

    @property
    def modalities(self) -> list[str]:
        """The modalities of its families beside text."""
        return sorted({str(modality) for spec in self.families for modality in spec.media})

    @property
    def checked(self) -> str:
        """The engine versions on which its families were checked."""
        versions_checked = {
            f"{name} {version}"
            for spec in self.families
            for name, versions in spec.checked.items()
            for version in versions
        }
        return ", ".join(sorted(versions_checked))


def architectures() -> Iterator[Architecture]:
    """All multimodal architectures of vLLM, in alphabetical order."""
    listed, specs = register(), known_families()
    for name in listed.names:
        families = tuple(
            spec
            for spec in specs
            if name in spec.match.get(_DECLARED, ()) or spec.family == listed.covered_by.get(name)
        )
        yield Architecture(name, families, None if families else listed.refusal([name]))
