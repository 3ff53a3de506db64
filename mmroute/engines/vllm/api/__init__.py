"""vLLM's API: what its routes take, refuse and answer, without a server."""
