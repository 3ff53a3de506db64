"""The parts of Ray that this package uses and that Ray may change without notice.

Ray marks its request routers as alpha, and modules below ``_private`` are private.
``tests/server/ray/test_alpha.py`` lists these parts as they are in Ray 2.60.0, and fails if the
installed Ray differs.
"""

from __future__ import annotations

from typing import Final

import ray
from packaging.version import Version
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

__all__ = [
    "EVENTS_KEY",
    "PendingRequest",
    "RequestRouter",
    "RunningReplica",
]

_OLDEST: Final = "2.60"

EVENTS_KEY: Final = "kv_event_metadata"
"""The key of a replica's routing statistics that has the addresses of its events: a mapping of
``endpoint``, ``replay_endpoint`` and ``block_size`` (``kv_aware/vllm/kv_events.py``)."""

if Version(ray.__version__) < Version(_OLDEST):
    raise ImportError(
        f"mmroute.server.ray needs Ray {_OLDEST} or later, found {ray.__version__}: "
        "pip install --upgrade 'ray[serve]'"
    )
