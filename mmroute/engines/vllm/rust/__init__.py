"""vLLM's Rust frontend: what it does otherwise than the Python one, before the same engine."""
