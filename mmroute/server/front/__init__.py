"""The front: sockets, the reading of requests, the writing of responses, and processes.

It knows nothing about models.
"""
