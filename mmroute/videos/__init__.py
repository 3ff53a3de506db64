"""The size, frame count and rate of a video as a client sends it, from the header of its file."""
