"""SGLang. `SglangSettings` are its options, for whoever has no command line of it."""

from mmroute.engines.sglang.settings import SglangSettings

__all__ = ["SglangSettings"]
