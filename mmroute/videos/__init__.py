"""The size, frame count and rate of a video as a client sends it, from the header of its file.

Whatever reads a part of a file here raises `InexactError`, with the reason
`video_not_predictable`, where that part does not tell what the engine will read.
"""
