"""What is known of the engine that runs: the version that it says it is, against those matched."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mmroute.engines.frontends import Frontend
from mmroute.engines.known import behind_frontend, find_engine
from mmroute.engines.profile import EngineProfile
from mmroute.errors import ModelError, shortened

_MOST_SHOWN: Final = 40


class Evidence(StrEnum):
    """How it is known what a version of an engine does."""

    PROVED = "proved"
    """Its own code gave the answers of its profile, on a CPU."""
    READ = "read"
    """A release beside it was run, or functions of one, and has the same rules; it was not run."""
    UNKNOWN = "unknown"
    """It is none of the releases that are known, or says none; or it is mmroute that answers in the
    engine's place."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine as it names itself.

    Attributes:
        engine: ``vllm`` or ``sglang``.
        version: the version that it states; empty if it states none.
        evidence: the grounds for what is known of this version.
        profile: the profile for its answers; None if the version is unknown.
        mmroute: the version of mmroute that answers in the engine's place; empty if none does.
        model_string: the model string it was started with; empty if it was not asked, or does not
            tell.
        frontend: the API server in front of the engine.
    """

    engine: str
    version: str
    evidence: Evidence
    profile: EngineProfile | None
    mmroute: str = ""
    model_string: str = ""
    frontend: Frontend = Frontend.PYTHON

    def behind(self, frontend: Frontend) -> RunningEngine:
        """The same engine behind one of its frontends, whose answers are known or not."""
        if frontend is self.frontend:
            return self
        profile = None
        if self.profile is not None:
            with contextlib.suppress(ModelError):
                profile = behind_frontend(self.profile, frontend)
        evidence = Evidence.UNKNOWN if profile is None else self.evidence
        return replace(self, frontend=frontend, profile=profile, evidence=evidence)

    def __str__(self) -> str:
        """One line: the version, and how it is known."""
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
        """The name by which `find_engine` gives the profile; empty if the version is unknown."""
        return "" if self.profile is None else self.profile.backend

    def warning(self, matched: EngineProfile) -> str:
        """Why the answers of a profile may not be this engine's; empty if they are.

        Args:
            matched: the profile by which requests are answered.
        """
        answers = f"answers are those of {matched.label}"
        if self.engine == matched.name and self.frontend is not matched.frontend:
            rust = int(self.frontend is Frontend.RUST)
            return (
                f"{self}, but {answers}: token IDs differ; load the model with "
                f"--engine-args VLLM_USE_RUST_FRONTEND={rust}"
            )
        if self.profile is None:
            return f"{self}. {answers}: token IDs, image identities and block hashes may differ"
        if self.engine != matched.name:
            return f"{self}, but {answers}: load the model with backend {self.backend!r}"
        if self.profile.era != matched.era:
            return (
                f"{self}, but {answers}: image identities and block hashes may differ; load the "
                f"model with backend {self.backend!r}"
            )
        return ""


def running_engine(engine: str, said: str) -> RunningEngine:
    """What is known of a version.

    Args:
        engine: ``vllm`` or ``sglang``.
        said: the version as the engine says it; empty if it says none.

    >>> print(running_engine("vllm", "0.33.0+cu130"))
    vllm 0.33.0+cu130: proved: its own code gives the answers of 'vllm==0.33.0'
    >>> running_engine("vllm", "0.34.0").evidence
    <Evidence.UNKNOWN: 'unknown'>
    """
    from packaging.version import InvalidVersion, Version  # which no model's loading needs

    with contextlib.suppress(InvalidVersion, ModelError):
        version = Version(said).public  # without what a build adds to its release: +cu130
        profile = find_engine(f"{engine}=={version}")
        if version in profile.proved:
            return RunningEngine(engine, said, Evidence.PROVED, profile)
        if version in profile.read:
            return RunningEngine(engine, said, Evidence.READ, profile)
    return RunningEngine(engine, said, Evidence.UNKNOWN, None)
