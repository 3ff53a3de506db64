"""The newest version of vLLM, with the defaults of its server.

Source: ``config/multimodal.py`` (--limit-mm-per-prompt), ``envs.py`` (VLLM_MAX_IMAGE_PIXELS,
VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES), and the smallest batch of tokens of its scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mmroute.engines.profile import ChatSource, EngineProfile
from mmroute.engines.vllm.defaults import processor_kwargs, with_defaults
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.identity import check_names, item_identity
from mmroute.requests.items import Modality
from mmroute.requests.request import check_cache_salt

if TYPE_CHECKING:
    from mmroute.chat import Chat


def _load_chat(source: ChatSource) -> Chat:
    from mmroute.engines.vllm.chats import load_chat  # jinja2

    return load_chat(source)


def _why_refused(architectures: Sequence[object]) -> str:
    from mmroute.engines.vllm.architectures import register  # pydantic

    refusal = register().refusal(architectures)
    return "" if refusal is None else f"{refusal.why}; {refusal.remedy}"


VLLM: Final = EngineProfile(
    "vllm",
    "0.33.0",
    era="0.33",
    prompts="vllm",
    proved=frozenset({"0.33.0"}),
    max_items=999,
    max_image_pixels=178_956_970,
    max_decoded_bytes=715_827_880,
    bytes_per_unit={Modality.IMAGE: 4, Modality.VIDEO: 3, Modality.AUDIO: 4},
    max_audio_seconds=600,
    max_audio_bytes=256 << 20,
    min_encoder_cache=2048,
    applies_exif_orientation=True,
    load_chat=_load_chat,
    identify=item_identity,
    hashing=VllmHashes(covers_lookahead=True),
    adds_special_tokens=lambda _tokenizer, request, _with_items: request.add_special_tokens,
    check_names=check_names,
    check_cache_salt=check_cache_salt,
    with_defaults=with_defaults,
    processor_kwargs=processor_kwargs,
    why_refused=_why_refused,
    takes_metadata=True,
    local_media_path="",
)
