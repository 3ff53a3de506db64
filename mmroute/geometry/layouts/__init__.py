"""What stands where an item was: one module per way of writing, listed in `geometry.registry`."""
