"""The old name of `mmroute.hashing`. It goes with the release after 0.1.0."""

from __future__ import annotations

import warnings

from mmroute import hashing

__all__ = hashing.__all__


def __getattr__(name: str) -> object:
    if name not in hashing.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"mmroute.block_hashes.{name} is mmroute.hashing.{name} now", DeprecationWarning, 2
    )
    return getattr(hashing, name)
