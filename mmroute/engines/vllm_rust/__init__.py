"""vLLM behind its Rust frontend. `RustSettings` are its options."""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.engines.vllm_rust.settings import RustSettings

__all__ = ["RustSettings"]

__getattr__ = lazily(__name__, {"RustSettings": "mmroute.engines.vllm_rust.settings"})
