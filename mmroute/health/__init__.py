"""Whether a loaded model does what it must, before it serves."""
