"""Answers from a server, in place of a model that is loaded here.

`Normalizer.from_pretrained` with ``remote=`` leads here; nothing but `Remote` is imported before.
"""

from mmroute.remote.settings import Remote

__all__ = ["Remote"]
