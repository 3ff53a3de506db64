"""Routings from a server, instead of from a model that is loaded in this process.

`mmroute.connect` leads here; nothing but `Remote` is imported before.
"""

from mmroute.net.remote import Remote

__all__ = ["Remote"]
