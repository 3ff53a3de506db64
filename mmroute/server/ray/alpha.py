"""The parts of Ray that this package uses and that Ray may change without notice.

Ray marks its request routers as alpha, and modules below ``_internal`` are private. `llm.py` itself
imports the classes from which it derives, because they need vLLM.
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
    "INGRESS_ROUTER",
    "TOKEN_IDS_KWARG",
    "PendingRequest",
    "RequestRouter",
    "RunningReplica",
]

_OLDEST: Final = "2.60"

TOKEN_IDS_KWARG: Final = "request_token_ids"
"""The argument of `choose_replica` with the token IDs (``kv_aware/constants.py``)."""

EVENTS_KEY: Final = "kv_event_metadata"
"""The key of a replica's routing statistics that has the addresses of its events: a mapping of
``endpoint``, ``replay_endpoint`` and ``block_size`` (``kv_aware/vllm/kv_events.py``)."""

INGRESS_ROUTER: Final = "ray.llm._internal.serve.core.ingress.router"
"""The module in which Ray's own builder looks for the class ``LLMRouter``."""

if Version(ray.__version__) < Version(_OLDEST):
    raise ImportError(
        f"mmroute.server.ray needs Ray {_OLDEST} or later, found {ray.__version__}: "
        "pip install --upgrade 'ray[serve]'"
    )
