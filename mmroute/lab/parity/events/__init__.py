"""Compares predicted block hashes with those that a running engine announces in its KV events."""
