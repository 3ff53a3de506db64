"""The engine profiles by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.engines.frontends import SGLANG_RUST_REFUSED, Frontend
from mmroute.engines.profile import EngineProfile
from mmroute.engines.sglang.profile import SGLANG
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.versions import find_version
from mmroute.engines.vllm_rust.profile import RUST_ERAS
from mmroute.errors import ModelError, Reason, nearest

_PROFILES: Final[Mapping[str, EngineProfile]] = {"sglang": SGLANG, "vllm": VLLM}


def engine_names() -> list[str]:
    """The names by which `find_engine` knows profiles."""
    return sorted(_PROFILES)


def find_engine(name: str) -> EngineProfile:
    """The profile of that name: an engine, or a version such as ``vllm==0.28``.

    Raises:
        ModelError: `unknown_backend`.
    """
    if name in _PROFILES:
        return _PROFILES[name]
    engine, _, version = name.partition("==")
    if engine == VLLM.name and version:
        return find_version(version)
    if engine == SGLANG.name and version:
        if version == SGLANG.version:
            return SGLANG
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"SGLang {version!r} is not known: there is {SGLANG.version}, as {SGLANG.backend!r}.",
        )
    near = nearest(name, _PROFILES)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"There is no backend profile {name!r}; there are: {', '.join(engine_names())}.{hint}",
    )


def behind_frontend(engine: EngineProfile, frontend: Frontend) -> EngineProfile:
    """The profile of an engine behind one of its frontends.

    Raises:
        ModelError: `unsupported_engine_setting`: the engine has no such frontend, or it is not
            covered.
    """
    if frontend == engine.frontend:
        return engine
    if engine.name == SGLANG.name:
        raise ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, SGLANG_RUST_REFUSED)
    for profile in RUST_ERAS:
        if engine.version in (profile.version, profile.version.rpartition(".")[0]):
            return profile
    raise ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"VLLM_USE_RUST_FRONTEND: the Rust frontend of {engine.backend} is not covered, only that "
        f"of {' and '.join(profile.backend for profile in RUST_ERAS)}; requests to this engine "
        "cannot be answered exactly",
    )
