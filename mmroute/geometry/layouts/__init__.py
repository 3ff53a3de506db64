"""Layouts: one module for each way of writing an item, listed in `geometry.registry`."""
