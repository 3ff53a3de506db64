"""All multimodal architectures of vLLM: those with a family spec, and the refused ones."""

from __future__ import annotations

import importlib.resources
import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import BaseModel, ConfigDict

from mmroute.requests.items import Modality


class Refusal(BaseModel):
    """The refusal of models of some architectures."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    why: str  # the reason, as the end of a sentence that begins with the model
    remedy: str  # what to do instead
    architectures: tuple[str, ...]  # the names of the architectures, as `config.json` declares them


class Register(BaseModel):
    """The multimodal architectures of one engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    engine: str  # its name and version
    # All architectures, in alphabetical order. A family spec matches each that is not refused.
    names: tuple[str, ...]
    # The architectures whose layers have several kinds of state, as far as the engine's classes
    # could be imported.
    hybrid: frozenset[str]
    # Architecture -> the modalities that the engine takes of some of its models, as far as its
    # class could be read.
    modalities: Mapping[str, frozenset[Modality]]
    covered_by: Mapping[str, str]  # the family of each architecture that its models do not declare
    refused: Mapping[str, Refusal]  # the refusals, by the kind of reason

    def refusal(self, names: Sequence[object]) -> Refusal | None:
        """The refusal of the first of these architectures that is refused; None if none is."""
        for refusal in self.refused.values():
            if any(name in refusal.architectures for name in names):
                return refusal
        return None


@cache
def register() -> Register:
    """The architectures of vLLM."""
    package = importlib.resources.files("mmroute.engines.vllm")
    listed = json.loads((package / "architectures.json").read_text(encoding="utf-8"))
    by_hand = tomllib.loads((package / "architectures.toml").read_text(encoding="utf-8"))
    return Register(
        engine=f"vllm {listed['read']['vLLM']}",
        names=tuple(sorted(listed["multimodal"], key=str.lower)),
        hybrid=listed["hybrid"],
        modalities={name: taken.split() for name, taken in listed["modalities"].items()},
        **by_hand,
    )
