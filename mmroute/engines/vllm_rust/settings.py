"""The settings of vLLM behind its Rust frontend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmroute.engines.vllm.settings import OF_HASHES, VllmSettings


@dataclass(frozen=True, slots=True, repr=False)
class RustSettings(VllmSettings):
    """The options of vLLM with VLLM_USE_RUST_FRONTEND=1. Its chats depend on the parsers, too."""

    engine: ClassVar[str] = "vllm-rust"
    strict_json: ClassVar[bool] = True
    not_of_prompts: ClassVar[tuple[str, ...]] = OF_HASHES
