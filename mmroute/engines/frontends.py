"""The API servers that can stand in front of one engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

OWN_TOKENIZER_MODES: Final = (
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "inkling", "kimi_k3", "mistral",
)  # fmt: skip
"""The values of vLLM's ``--tokenizer-mode`` that name a tokenizer or a chat renderer of its own."""
SGLANG_RUST_REFUSED: Final = (
    "SGLANG_RUST_SERVER: SGLang's Rust server is not covered. It renders, tokenizes and counts "
    "images by other code than its Python server, which runs where the variable is not set, and "
    "for which --backend sglang answers"
)


class Frontend(StrEnum):
    """The API server in front of an engine, which renders, tokenizes and names images."""

    PYTHON = "python"
    RUST = "rust"
    """vLLM's by VLLM_USE_RUST_FRONTEND, or SGLang's by SGLANG_RUST_SERVER. Its token IDs and image
    identities are others."""
