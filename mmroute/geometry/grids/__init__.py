"""How many tokens an item has: one module per way of counting, listed in `geometry.registry`."""
