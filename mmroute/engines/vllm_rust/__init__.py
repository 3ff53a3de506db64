"""The rules by which vLLM's Rust frontend differs from the Python one."""
