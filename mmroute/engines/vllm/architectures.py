"""Every multimodal architecture of vLLM: covered by a family spec, or refused, and why."""

from __future__ import annotations

import importlib.resources
import json
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
        names: all of them, in alphabetical order. A family spec matches those that are not refused.
        hybrid: those whose layers have several kinds of state, so far as the engine's classes of
            them could be imported.
        covered_by: architecture -> family, where its models declare no architecture.
        refused: those that are refused, by the kind of reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    engine: str
    names: tuple[str, ...]
    hybrid: frozenset[str]
    covered_by: Mapping[str, str]
    refused: Mapping[str, Refusal]

    def refusal(self, names: Sequence[object]) -> Refusal | None:
        """Why one of these architectures is refused, if one is."""
        for refusal in self.refused.values():
            if any(name in refusal.architectures for name in names):
                return refusal
        return None


@cache
def register() -> Register:
    """The architectures of vLLM."""
    package = importlib.resources.files("mmroute.engines.vllm")
    listed = json.loads((package / "architectures.json").read_text(encoding="utf-8"))
    told = tomllib.loads((package / "architectures.toml").read_text(encoding="utf-8"))
    return Register(
        engine=f"vllm {listed['read']['vLLM']}",
        names=tuple(sorted(listed["multimodal"], key=str.lower)),
        hybrid=listed["hybrid"],
        **told,
    )
