"""The newest version of vLLM, with the defaults of its server.

Source: ``config/multimodal.py`` (--limit-mm-per-prompt), ``envs.py`` (VLLM_MAX_IMAGE_PIXELS,
VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES), and the smallest batch of tokens of its scheduler.
"""

from __future__ import annotations

from typing import Final

from mmroute.engine import Limits, Naming
from mmroute.engines.vllm.engine import VllmEngine
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.identity import check_names, item_identity
from mmroute.release import Release
from mmroute.requests.items import Modality

VLLM: Final = VllmEngine(
    Release("vllm", "0.33.0", "0.33", "vllm", proved=frozenset({"0.33.0"})),
    Limits(
        max_items=dict.fromkeys(Modality, 999),
        max_image_pixels=178_956_970,
        max_decoded_bytes=715_827_880,
        bytes_per_unit={Modality.IMAGE: 4, Modality.VIDEO: 3, Modality.AUDIO: 4},
        max_audio_seconds=600,
        max_audio_bytes=256 << 20,
        min_encoder_cache=2048,
        applies_exif_orientation=True,
        takes_metadata=True,
        local_media_path="",
    ),
    Naming(item_identity, check_names),
    VllmHashes(covers_lookahead=True),
)
