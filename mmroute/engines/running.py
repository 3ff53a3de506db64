"""The engine of a running server, and whether its answers are those of a profile."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mmroute.engine import Engine, engine_names, find_engine
from mmroute.errors import InexactError, ModelError, Reason, shortened
from mmroute.release import PYTHON

if TYPE_CHECKING:
    from mmroute.net.transport import Transport

_MODELS: Final = "/v1/models"
_MOST_SHOWN: Final = 40
_RUST: Final = "rust"


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
    """An engine as it reports itself."""

    engine: str  # `vllm` or `sglang`
    version: str  # the version that it reports; empty if it reports none
    evidence: Evidence  # the evidence for the answers of this version
    profile: Engine | None  # the profile for its answers; None if the version is unknown
    # The version of mmroute that answers in the engine's place; empty if none does.
    mmroute: str = ""
    model_string: str = ""  # the engine's model string; empty if it is not known
    max_model_len: int | None = None  # the number of tokens of its context; None if it is not known
    frontend: str = PYTHON  # the API server in front of the engine

    def behind(self, frontend: str) -> RunningEngine:
        """The same engine behind another frontend."""
        if frontend == self.frontend:
            return self
        profile = None
        if self.profile is not None:
            with contextlib.suppress(ModelError):
                release = self.profile.release
                name = release.name if frontend == PYTHON else f"{release.name}-{frontend}"
                profile = find_engine(f"{name}=={release.version}")
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
        frontend = f", {self.frontend} frontend" if self.frontend != PYTHON else ""
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

    @property
    def nearest(self) -> str:
        """The name by which the nearest era of an unknown version is found; empty if none is."""
        from packaging.version import InvalidVersion, Version  # which no model's loading needs

        name = self.engine if self.frontend == PYTHON else f"{self.engine}-{self.frontend}"
        with contextlib.suppress(InvalidVersion, ModelError):
            return find_engine(f"{name}=={Version(self.version).public}").release.backend
        return ""

    def warning(self, matched: Engine) -> str:
        """A warning that the answers of a profile may not be this engine's; empty if they are."""
        ours = matched.release
        answers = f"answers are those of {ours.label}"
        if self.engine == ours.name and self.frontend != ours.frontend:
            rust = int(self.frontend == _RUST)
            has_both = f"{self.engine}-{_RUST}" in engine_names()
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


def ask_engine(transport: Transport) -> RunningEngine:
    """The engine of a server, as it names itself; an unknown engine if it does not."""
    # The first route is one of mmroute serve as well, which names the engine that it matches.
    for route, usual in (("/version", "vllm"), ("/server_info", "sglang")):
        body = transport.request("GET", route).body
        if isinstance(body, dict) and isinstance(body.get("version"), str):
            running = running_engine(str(body.get("engine", usual)), body["version"])
            running = running.behind(_frontend(body))
            if body.get("mmroute"):
                return replace(running, mmroute=str(body["mmroute"]), evidence=Evidence.UNKNOWN)
            return running
    if _is_rust_renderer(transport):
        return running_engine("vllm", "").behind(_RUST)
    return running_engine("engine", "")


def _frontend(version: Mapping[str, Any]) -> str:
    """The frontend that answers the route of its version.

    Source: vLLM ``rust/src/server/src/routes/version.rs``; SGLang 0.5.23
    ``srt/managers/scheduler_components/internal_state.py`` (`_add_rust_server`).
    """
    states = version.get("internal_states") or ()
    rust = (
        "rust_frontend_version" in version
        or version.get("frontend") == _RUST
        or any("rust_server_startup_time" in state for state in states if isinstance(state, dict))
    )
    return _RUST if rust else PYTHON


def _is_rust_renderer(transport: Transport) -> bool:
    """Whether the server is ``vllm-rs render``, which does not report its version.

    It refuses a wrong method with an empty body, where the Python server answers in JSON.
    """
    reply = transport.request("GET", "/v1/chat/completions/render")
    return reply.status == HTTPStatus.METHOD_NOT_ALLOWED and not reply.raw


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model or an adapter, as its server lists it.

    Source: vLLM ``entrypoints/openai/models/serving.py``.
    """

    parent: str | None  # the model to which an adapter belongs; None for a model
    root: str  # the model string, or the adapter's path; empty if the server gives none
    max_model_len: int | None  # the longest context; None if the server does not give it


def served_models(transport: Transport) -> Mapping[str, ServedModel]:
    """The models and adapters of a server by their names, at least one."""
    reply = transport.request("GET", _MODELS)
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE, f"{transport.name} refuses the API key, or requires one"
        )
    body = reply.body
    cards = body.get("data") if isinstance(body, dict) else None
    names = {
        str(card.get("id")): ServedModel(
            card.get("parent") or None, str(card.get("root") or ""), card.get("max_model_len")
        )
        for card in (cards if isinstance(cards, list) else ())
        if isinstance(card, dict)
    }
    if reply.status != HTTPStatus.OK or not names:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE,
            f"{transport.name}{_MODELS} answered with status {reply.status} and names no model; is "
            "it a vLLM server, or mmroute serve?",
        )
    return names
