"""Compares mmroute's answers with an engine's, and finds the causes of differences."""
