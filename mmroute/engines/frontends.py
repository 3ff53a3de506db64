"""The API servers that can stand in front of one engine."""

from __future__ import annotations

from enum import StrEnum


class Frontend(StrEnum):
    """The API server in front of an engine, which renders, tokenizes and names images."""

    PYTHON = "python"
    RUST = "rust"
    """vLLM's, by VLLM_USE_RUST_FRONTEND. Its token IDs and image identities are others."""
