"""vLLM 0.33.0 behind its Rust frontend, by the defaults of that server.

What the engine itself does is the same. What the frontend does, from messages to token IDs and to
the names of images, is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mmroute.engines.frontends import Frontend
from mmroute.engines.vllm.profile import VLLM

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.profile import ChatSource
    from mmroute.engines.settings import EngineSettings
    from mmroute.requests.request import Request


def _load_chat(source: ChatSource) -> Chat:
    from mmroute.engines.vllm.rust.chats import load_chat  # jinja2

    return load_chat(source)


def _with_defaults(request: Request, _settings: EngineSettings, _chat: Chat) -> Request:
    return request  # its chats know the settings themselves


VLLM_RUST: Final = replace(
    VLLM,
    frontend=Frontend.RUST,
    prompts="vllm-rust",
    load_chat=_load_chat,
    with_defaults=_with_defaults,
    tokenizer_as_written=True,
    without_media=(
        "images, videos and audio are not covered for vLLM's Rust frontend, which resizes and "
        "names them otherwise than the Python one"
    ),
)
