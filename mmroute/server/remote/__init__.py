"""Routings from a server, in place of a model that is loaded in this process.

`mmroute.connect` imports these modules. `Remote` can be used without them.
"""

from mmroute.net.remote import Remote

__all__ = ["Remote"]
