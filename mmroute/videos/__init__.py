"""Videos as a client sends them: size, frames and rate, from the header of their file."""
