"""The API servers that can stand in front of one engine."""

from __future__ import annotations

from enum import StrEnum

from mmroute.engine import PYTHON, Engine, find_engine


class Frontend(StrEnum):
    """The API server in front of an engine, which renders, tokenizes and names images."""

    PYTHON = PYTHON
    RUST = "rust"
    """vLLM's by VLLM_USE_RUST_FRONTEND, or SGLang's by SGLANG_RUST_SERVER. Its token IDs and image
    identities are others."""


def of_frontend(engine: Engine, frontend: Frontend) -> Engine:
    """The same version of an engine behind one of its frontends, by its defaults."""
    release = engine.release
    name = release.name if frontend is Frontend.PYTHON else f"{release.name}-{frontend}"
    return find_engine(f"{name}=={release.version}")
