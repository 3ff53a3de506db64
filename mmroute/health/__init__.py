"""Checks of a loaded model, which are made before it serves requests."""
