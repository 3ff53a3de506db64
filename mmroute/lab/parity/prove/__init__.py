"""Starts an engine on a shrunken copy of a model, and compares what it answers and publishes."""
