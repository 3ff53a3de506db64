"""mmroute on a Ray cluster: routing by cached blocks, and the server as an application.

It needs the extra `ray`. Only ``mmroute trace --ray`` imports this package.
Importing it does not load Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.server.ray.application import app
    from mmroute.server.ray.llm import KVBlockHashRouter, LLMRouter, build_openai_app
    from mmroute.server.ray.router import BlockHashRouter
    from mmroute.server.ray.tokenizer import IngressTokenizer

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
        "BlockHashRouter": "mmroute.server.ray.router",
        "IngressTokenizer": "mmroute.server.ray.tokenizer",
        "KVBlockHashRouter": "mmroute.server.ray.llm",
        "LLMRouter": "mmroute.server.ray.llm",
        "app": "mmroute.server.ray.application",
        "build_openai_app": "mmroute.server.ray.llm",
    },
)
