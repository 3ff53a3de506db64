"""SGLang. `SglangSettings` are its options, for whoever has no command line of it."""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.engines.sglang.settings import SglangSettings

__all__ = ["SglangSettings"]

__getattr__ = lazily(__name__, {"SglangSettings": "mmroute.engines.sglang.settings"})
