"""vLLM. `VllmSettings` are its options, for whoever has no command line of it."""

from mmroute.engines.vllm.settings import VllmSettings

__all__ = ["VllmSettings"]
