"""A model: its files, its family spec, and what is worked out of both before the first request."""
