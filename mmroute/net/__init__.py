"""Connections as a client: deadlines, allowed addresses, fetching."""
