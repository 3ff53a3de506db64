"""Names of images under vLLM's Rust frontend.

Source: vLLM ``rust/src/chat/src/multimodal.rs`` (`prepare_multimodal_timed`), and the crate
llm-multimodal, which fetches, hashes and decodes files. Compared with the running frontend.
"""

from __future__ import annotations

from typing import Any

from blake3 import blake3

from mmroute.requests.items import Identity, IdentitySource, ImageFile, Item


def file_identity(item: Item, *, turned: bool = True, **_known: Any) -> Identity | None:
    """See `mmroute.engine.Identify`: the digest of the file alone, without the model."""
    if isinstance(item, ImageFile):
        from mmroute.engines.vllm_rust.image_files import check_file  # takes 20 ms: Pillow

        check_file(item, turned=turned)
    uuid = item.size.uuid
    if uuid is not None:
        return Identity(uuid, IdentitySource.UUID)
    if not isinstance(item, ImageFile):
        return None
    return Identity(blake3(item.data).hexdigest(), IdentitySource.CONTENT_HASH)
