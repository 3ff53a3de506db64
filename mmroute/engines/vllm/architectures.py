"""Every multimodal architecture of vLLM: covered by a family spec, or refused, and why."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import BaseModel, ConfigDict


class Refusal(BaseModel):
    """Why models of some architectures are refused.

    Attributes:
        why: the reason, as the end of a sentence that begins with the model.
        remedy: what to do instead.
        architectures: their names, as ``config.json`` declares them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    why: str
    remedy: str
    architectures: tuple[str, ...]


class Register(BaseModel):
    """The multimodal architectures of one engine.

    Attributes:
        engine: its name and version.
        covered: architectures that a shipped family spec matches.
        covered_by: architecture -> family, where its models declare no architecture.
        refused: the others, by the kind of reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    engine: str
    covered: tuple[str, ...]
    covered_by: Mapping[str, str]
    refused: Mapping[str, Refusal]

    @property
    def names(self) -> list[str]:
        """All architectures, in alphabetical order."""
        refused = (name for refusal in self.refused.values() for name in refusal.architectures)
        return sorted([*self.covered, *self.covered_by, *refused], key=str.lower)

    def refusal(self, names: Sequence[object]) -> Refusal | None:
        """Why one of these architectures is refused, if one is."""
        for refusal in self.refused.values():
            if any(name in refusal.architectures for name in names):
                return refusal
        return None


@cache
def register() -> Register:
    """The architectures of vLLM."""
    file = importlib.resources.files("mmroute.engines.vllm") / "architectures.toml"
    return Register.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
