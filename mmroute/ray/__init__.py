"""mmroute on a Ray cluster: routing by cached blocks, and the server as an application.

It needs the extra `ray`. Only ``mmroute trace --ray`` imports this package.
Importing it does not load Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

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

__getattr__ = lazily(
    __name__,
    {
        "BlockHashRouter": "mmroute.ray.router",
        "IngressTokenizer": "mmroute.ray.tokenizer",
        "KVBlockHashRouter": "mmroute.ray.llm",
        "LLMRouter": "mmroute.ray.llm",
        "app": "mmroute.ray.application",
        "build_openai_app": "mmroute.ray.llm",
    },
)
