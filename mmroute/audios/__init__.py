"""The number of samples and the rate of audio as a client sends it, from its file's header.

Whatever reads a part of a file here raises `InexactError`, with the reason
`audio_not_predictable`, where that part does not tell what the engine will decode.
"""
