"""Engines whose behaviour is matched: one profile for each engine and range of versions."""

from mmroute.engines.known import engine_names, find_engine
from mmroute.engines.profile import EngineProfile
from mmroute.engines.settings import EngineSettings

__all__ = ["EngineProfile", "EngineSettings", "engine_names", "find_engine"]
