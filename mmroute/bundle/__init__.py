"""Fetch tokenizer and configuration files from workers over gRPC, and keep a registry of them.

Needs the extra ``mmroute[bundle]``; importing `mmroute` does not import this package.
"""

from mmroute.bundle.client import Bundle, fetch_bundle
from mmroute.bundle.faults import BundleError, Fault
from mmroute.bundle.files import Limits
from mmroute.bundle.fleet import FleetError
from mmroute.bundle.registry import Status, TokenizerRegistry

__all__ = [
    "Bundle", "BundleError", "Fault", "FleetError", "Limits", "Status", "TokenizerRegistry",
    "fetch_bundle",
]  # fmt: skip
