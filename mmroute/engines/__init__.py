"""Engines whose behaviour is matched: one profile for each engine and range of versions."""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mmroute.engines.known import engine_names, find_engine
    from mmroute.engines.profile import EngineProfile
    from mmroute.engines.settings import EngineSettings

__all__ = ["EngineProfile", "EngineSettings", "engine_names", "find_engine"]

# The profiles import what every engine does, which only loading a model needs (PEP 562).
_HOMES: Final = {
    "EngineProfile": "profile",
    "EngineSettings": "settings",
    "engine_names": "known",
    "find_engine": "known",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
