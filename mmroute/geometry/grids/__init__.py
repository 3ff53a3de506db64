"""Grids: one module for each way of counting tokens, listed in `geometry.registry`."""
