"""The HTTP APIs of engines: a package for each engine, without a server."""
