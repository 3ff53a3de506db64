"""Parity: whether routing token IDs are the engine's, and where they are not, why."""
