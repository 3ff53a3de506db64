"""SGLang 0.5.23, by the defaults of its server.

Items are counted by the same processors of transformers as in vLLM. SGLang differs in messages,
templates, special tokens, orientation and the hashes of its prefix cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mmroute.engines.profile import ChatSource, EngineProfile
from mmroute.engines.sglang.hashes import SglangHashes
from mmroute.engines.sglang.identity import identity_of_hash, item_identity
from mmroute.engines.sglang.json_values import check_unicode
from mmroute.errors import invalid, quoted
from mmroute.requests.items import Modality, check_text
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.settings import EngineSettings
    from mmroute.tokenizers import Tokenizer

_NO_LIMIT: Final = 1 << 62
# Those of a body in which nothing else refuses a lone surrogate.
_UNREAD: Final = (
    "tools", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "mm_hashes",
    "api_fields",
)  # fmt: skip


def _check_cache_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str):
        raise invalid(f"cache_salt must be a text, found {quoted(salt)}")
    check_text("cache_salt", salt)


def _check_unicode(request: Request, _settings: EngineSettings, _chat: Chat, /) -> Request:
    """The request. SGLang refuses a body with half of a surrogate pair in any of its texts."""
    for name in _UNREAD:
        if value := getattr(request, name):
            check_unicode(name, value)
    return request


def _load_chat(source: ChatSource) -> Chat:
    from mmroute.engines.sglang.chat import load_chat  # jinja2

    return load_chat(source)


def _adds_special_tokens(tokenizer: Tokenizer, request: Request, with_items: bool, /) -> bool:
    """Whether the engine puts special tokens around the text of a prompt, whatever is asked."""
    bos = tokenizer.template_tokens.get("bos_token")
    return not (with_items and bos and str(request.prompt).startswith(bos))


SGLANG: Final = EngineProfile(
    "sglang",
    "0.5.23",
    era="0.5.23",
    prompts="sglang",
    proved=frozenset({"0.5.23"}),
    max_items=_NO_LIMIT,
    max_image_pixels=178_956_970,  # Pillow's own
    max_decoded_bytes=_NO_LIMIT,
    bytes_per_unit=dict.fromkeys(Modality, 0),
    max_audio_seconds=_NO_LIMIT,
    max_audio_bytes=_NO_LIMIT,
    min_encoder_cache=_NO_LIMIT,
    applies_exif_orientation=False,
    load_chat=_load_chat,
    identify=item_identity,
    hashing=SglangHashes(),
    adds_special_tokens=_adds_special_tokens,
    check_names=lambda _named, _items, _forms: None,  # it keeps no processed items by that name
    check_cache_salt=_check_cache_salt,
    with_defaults=_check_unicode,
    why_refused=lambda _architectures: "",
    processor_kwargs=lambda _defaults, _settings: {},  # those of a request change nothing
    only_checked_families=True,
    renders=False,
    read_mm_hash=identity_of_hash,
)
