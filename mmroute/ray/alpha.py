"""All that this package uses of Ray and that Ray may change without notice.

Ray marks its request routers as alpha, and what is below ``_internal`` is private. `llm.py`
imports itself the classes that it derives from: they need vLLM. ``tests/ray/test_alpha.py`` lists
all that is relied on, as Ray 2.60.0 has it, and fails where the installed Ray has it otherwise.
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
"""The key of a replica's routing statistics under which it tells where its events are: a mapping
of ``endpoint``, ``replay_endpoint`` and ``block_size`` (``kv_aware/vllm/kv_events.py``)."""

INGRESS_ROUTER: Final = "ray.llm._internal.serve.core.ingress.router"
"""The module in which Ray's own builder looks for the class ``LLMRouter``."""

if Version(ray.__version__) < Version(_OLDEST):
    raise ImportError(
        f"mmroute.ray needs Ray {_OLDEST} or later, found {ray.__version__}: "
        "pip install --upgrade 'mmroute[ray]'"
    )
