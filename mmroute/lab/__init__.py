"""Proof, measurement and new models: what no router needs to answer a request."""
