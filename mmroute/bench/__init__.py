"""What requests cost: latency by stage, throughput of all cores, memory of a loaded model."""
