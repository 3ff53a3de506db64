"""Predicted block hashes against those that a running engine announces in its KV events."""
