"""Fetches tokenizer and configuration files from the workers of a model over gRPC.

Needs the extra `bundle`; importing `mmroute` does not import this package.
"""

from mmroute.server.bundle.client import Bundle, fetch_bundle
from mmroute.server.bundle.files import BundleError
from mmroute.server.bundle.fleet import fetch_fleet

__all__ = ["Bundle", "BundleError", "fetch_bundle", "fetch_fleet"]
