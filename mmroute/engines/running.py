"""The version of a running engine, and whether its answers are those of a profile."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mmroute.engine import Engine, engine_names, find_engine
from mmroute.engines.frontends import Frontend, of_frontend
from mmroute.errors import ModelError, shortened

_MOST_SHOWN: Final = 40


class Evidence(StrEnum):
    """The evidence that a version of an engine has the answers of its profile."""

    PROVED = "proved"
    """The version's own code was run on a CPU, and gave these answers."""
    READ = "read"
    """The version was not run. Another release with the same rules was run, or functions of one."""
    UNKNOWN = "unknown"
    """The version is not known or not reported, or mmroute answers in the engine's place."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine as it reports itself.

    Attributes:
        engine: ``vllm`` or ``sglang``.
        version: the version that it reports; empty if it reports none.
        evidence: the evidence for the answers of this version.
        profile: the profile for its answers; None if the version is unknown.
        mmroute: the version of mmroute that answers in the engine's place; empty if none does.
        model_string: the engine's model string; empty if it is not known.
        max_model_len: the number of tokens of its context; None if it is not known.
        frontend: the API server in front of the engine.
    """

    engine: str
    version: str
    evidence: Evidence
    profile: Engine | None
    mmroute: str = ""
    model_string: str = ""
    max_model_len: int | None = None
    frontend: Frontend = Frontend.PYTHON

    def behind(self, frontend: Frontend) -> RunningEngine:
        """The same engine behind another frontend."""
        if frontend is self.frontend:
            return self
        profile = None
        if self.profile is not None:
            with contextlib.suppress(ModelError):
                profile = of_frontend(self.profile, frontend)
        evidence = Evidence.UNKNOWN if profile is None else self.evidence
        return replace(self, frontend=frontend, profile=profile, evidence=evidence)

    def __str__(self) -> str:
        """One line with the version and the evidence."""
        version = shortened(self.version[:_MOST_SHOWN]) or "of no stated version"
        if self.mmroute:
            return (
                f"mmroute {shortened(self.mmroute[:_MOST_SHOWN])} in the place of {self.engine} "
                f"{version}: the answers are mmroute's own, and prove nothing of the engine"
            )
        frontend = f", {self.frontend} frontend" if self.frontend is not Frontend.PYTHON else ""
        line = f"{self.engine} {version}{frontend}: {self.evidence}"
        match self.evidence:
            case Evidence.PROVED:
                return f"{line}: its own code gives the answers of {self.backend!r}"
            case Evidence.READ:
                return f"{line}: releases beside it answer as {self.backend!r}; it was not run"
            case Evidence.UNKNOWN:
                return f"{line}: nobody compared it; see `mmroute docs versions`"

    @property
    def backend(self) -> str:
        """The name by which `find_engine` finds the profile; empty if the version is unknown."""
        return "" if self.profile is None else self.profile.release.backend

    def warning(self, matched: Engine) -> str:
        """A warning that the answers of a profile may not be this engine's; empty if they are."""
        ours = matched.release
        answers = f"answers are those of {ours.label}"
        if self.engine == ours.name and self.frontend != ours.frontend:
            rust = int(self.frontend is Frontend.RUST)
            has_both = f"{self.engine}-{Frontend.RUST}" in engine_names()
            remedy = f"; load the model with --engine-args VLLM_USE_RUST_FRONTEND={rust}"
            return f"{self}, but {answers}: token IDs differ{remedy if has_both else ''}"
        if self.profile is None:
            return f"{self}. {answers}: token IDs, image identities and block hashes may differ"
        if self.engine != ours.name:
            return f"{self}, but {answers}: load the model with backend {self.backend!r}"
        if self.profile.release.era != ours.era:
            return (
                f"{self}, but {answers}: image identities and block hashes may differ; load the "
                f"model with backend {self.backend!r}"
            )
        return ""


def running_engine(engine: str, reported: str) -> RunningEngine:
    """The engine of a reported version.

    >>> print(running_engine("vllm", "0.33.0+cu130"))
    vllm 0.33.0+cu130: proved: its own code gives the answers of 'vllm==0.33.0'
    >>> running_engine("vllm", "0.34.0").evidence
    <Evidence.UNKNOWN: 'unknown'>
    """
    from packaging.version import InvalidVersion, Version  # which no model's loading needs

    with contextlib.suppress(InvalidVersion, ModelError):
        version = Version(reported).public  # without the label of a build, such as +cu130
        profile = find_engine(f"{engine}=={version}")
        if version in profile.release.proved:
            return RunningEngine(engine, reported, Evidence.PROVED, profile)
        if version in profile.release.read:
            return RunningEngine(engine, reported, Evidence.READ, profile)
    return RunningEngine(engine, reported, Evidence.UNKNOWN, None)
