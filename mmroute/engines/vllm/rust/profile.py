"""vLLM 0.33.0 behind its Rust frontend, by the defaults of that server.

What the engine itself does is the same. What the frontend does, from messages to token IDs and to
the names of images, is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mmroute.engines.frontends import Frontend
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.rust.families import as_served
from mmroute.engines.vllm.rust.identity import file_identity

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
    identify=file_identity,
    max_image_pixels=1 << 26,  # eight bytes each fill what its decoder may take
    as_served=as_served,
    without_media=(
        "the Rust frontend takes no such media for a model of this string and family, or it was "
        "not compared; docs/frontends.md lists what is covered"
    ),
)
