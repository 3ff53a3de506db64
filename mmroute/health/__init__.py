"""Checks of a loaded model, made before it serves."""
