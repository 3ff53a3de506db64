"""Measurements: latency by stage, throughput of all cores, load time and memory of a model."""
