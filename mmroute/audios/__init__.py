"""The number of samples and the rate of audio as a client sends it, from its file's header."""
