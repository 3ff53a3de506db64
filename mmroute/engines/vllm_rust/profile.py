"""vLLM 0.33.0 and 0.32.0 behind their Rust frontends, by the defaults of those servers.

The engine is the same. The frontend differs from messages to token IDs, and in the names of images.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mmroute.engines.frontends import Frontend
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.versions import find_version
from mmroute.engines.vllm_rust.families import as_served
from mmroute.engines.vllm_rust.identity import file_identity
from mmroute.errors import InexactError, Reason
from mmroute.requests.request import check_cache_salt

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.profile import ChatSource
    from mmroute.model_directory import ModelFiles
    from mmroute.reuse.fast_paths import FastPaths
    from mmroute.tokenizers import Tokenizer


def _load_chat(source: ChatSource, *, earlier: bool = False) -> Chat:
    from mmroute.engines.vllm_rust.chats import load_chat  # jinja2

    return load_chat(source, earlier=earlier)


def _load_tokenizer(files: ModelFiles, fast_paths: FastPaths) -> Tokenizer:
    from mmroute.engines.vllm_rust.tokenizer import load_tokenizer  # tokenizers

    return load_tokenizer(files, fast_paths)


def _check_salt(salt: object) -> None:
    """Do not cover what the newest frontend refuses, and an earlier one may take."""
    try:
        check_cache_salt(salt)
    except InexactError as error:
        raise InexactError(Reason.UNSUPPORTED_FIELD, str(error)) from None


_FRONTEND: Final[dict[str, Any]] = {
    "frontend": Frontend.RUST,
    "prompts": "vllm-rust",
    "load_chat": _load_chat,
    "with_defaults": lambda request, _settings, _chat: request,  # its chats know the settings
    "load_tokenizer": _load_tokenizer,
    "takes_metadata": False,  # its processor was not compared
    "local_media_path": None,
    "identify": file_identity,
    "max_image_pixels": 1 << 26,  # eight bytes each fill what its decoder may take
    "as_served": as_served,
    "without_media": (
        "the Rust frontend takes no such media for a model of this string and family, or it was "
        "not compared; docs/frontends.md lists what is covered"
    ),
}
VLLM_RUST: Final = replace(VLLM, **_FRONTEND)
_V0_32: Final = {
    "prompts": "vllm-rust-0.32",
    "load_chat": partial(_load_chat, earlier=True),
    "identify": partial(file_identity, turned=False),
    "applies_exif_orientation": False,
    "check_cache_salt": _check_salt,
}
RUST_ERAS: Final = (VLLM_RUST, replace(find_version("0.32.0"), **(_FRONTEND | _V0_32)))
"""The newest first."""
