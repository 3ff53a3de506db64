"""How vLLM is started on a shrunken copy of a model, for ``mmroute prove``."""

from mmroute.engines.vllm.serve_command import parse_command
from mmroute.lab.engines.vllm.environment import NEWEST, engine_environment, installed_version
from mmroute.lab.engines.vllm.start import start_engine

__all__ = ["NEWEST", "engine_environment", "installed_version", "parse_command", "start_engine"]
