"""Parity: compare routing token IDs with an engine's, and diagnose differences."""
