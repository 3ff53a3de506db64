"""mmroute on a Ray cluster: requests routed by cached blocks, and the server as an application.

Needs ``pip install 'mmroute[ray]'``. Nothing else in mmroute imports this package, but
``mmroute trace --ray``, and importing it loads no Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mmroute.ray.application import app
    from mmroute.ray.llm import KVBlockHashRouter, LLMRouter, build_openai_app
    from mmroute.ray.router import BlockHashRouter
    from mmroute.ray.tokenizer import IngressTokenizer

__all__ = [
    "BlockHashRouter",
    "IngressTokenizer",
    "KVBlockHashRouter",
    "LLMRouter",
    "app",
    "build_openai_app",
]

_MODULES: Final = {
    "BlockHashRouter": "router",
    "IngressTokenizer": "tokenizer",
    "KVBlockHashRouter": "llm",
    "LLMRouter": "llm",
    "app": "application",
    "build_openai_app": "llm",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
