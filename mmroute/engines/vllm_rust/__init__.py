"""vLLM behind its Rust frontend. `RustSettings` are its options."""

from mmroute.engines.vllm_rust.settings import RustSettings

__all__ = ["RustSettings"]
