"""What requests share: why two of them miss each other's blocks, and what a trace allows."""
