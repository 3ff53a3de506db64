"""Audio as a client sends it: samples and rate, from the header of its file."""
