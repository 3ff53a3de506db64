"""The body to forward to an engine, with token IDs, so that the engine need not tokenize again.

Each function makes the body for one route of one engine, from an exact `Routing` and the client's
own OpenAI request. Media stay as the client sent them. A function raises ValueError if its route
cannot carry a part of the request: forward the client's request unchanged then.
"""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.engines.forwarding import with_uuids
    from mmroute.engines.sglang.forwarding import sglang_chat, sglang_generate
    from mmroute.engines.vllm.forwarding import (
        OUTPUT_MODES,
        OutputMode,
        vllm_chat,
        vllm_chat_cached,
        vllm_chat_metadata,
        vllm_generate,
        vllm_generate_cached,
        vllm_generate_metadata,
    )

__all__ = [
    "OUTPUT_MODES", "OutputMode", "sglang_chat", "sglang_generate", "vllm_chat", "vllm_chat_cached",
    "vllm_chat_metadata", "vllm_generate", "vllm_generate_cached", "vllm_generate_metadata",
    "with_uuids",
]  # fmt: skip

_ENGINES = {
    "vllm": ("OUTPUT_MODES", "OutputMode", "vllm_chat", "vllm_chat_cached", "vllm_chat_metadata",
             "vllm_generate", "vllm_generate_cached", "vllm_generate_metadata"),
    "sglang": ("sglang_chat", "sglang_generate"),
}  # fmt: skip

__getattr__ = lazily(
    __name__,
    {"with_uuids": "mmroute.engines.forwarding"}
    | {
        name: f"mmroute.engines.{engine}.forwarding"
        for engine, names in _ENGINES.items()
        for name in names
    },
)
