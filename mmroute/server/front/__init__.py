"""The front: sockets, HTTP up to a head and from a response on, and the processes of a server.

Knows nothing of models.
"""
