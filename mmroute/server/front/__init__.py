"""The front: sockets, reading of requests, writing of responses, metrics of several processes.

It knows nothing about models.
"""
