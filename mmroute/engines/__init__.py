"""Engines whose behaviour is matched: one profile for each engine and range of versions."""
