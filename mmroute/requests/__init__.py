"""A client's request, which is checked once, and the items in it."""
