"""All that this package uses of Ray and that Ray may change without notice.

Ray marks its request routers as alpha, and what is below ``_internal`` is private. Nothing else in
this package imports any of it. `PINNED` has what is relied on, as Ray 2.60.0 has it;
``tests/ray/test_alpha.py`` fails where the installed Ray has it otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ray
from packaging.version import Version
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

__all__ = [
    "EVENTS_KEY",
    "INGRESS_ROUTER",
    "OLDEST",
    "PINNED",
    "TOKEN_IDS_KWARG",
    "PendingRequest",
    "RequestRouter",
    "RunningReplica",
]

OLDEST: Final = "2.60"

TOKEN_IDS_KWARG: Final = "request_token_ids"
"""The argument of `choose_replica` with the token IDs (``kv_aware/constants.py``)."""

EVENTS_KEY: Final = "kv_event_metadata"
"""The key of a replica's routing statistics under which it tells where its events are: a mapping
of ``endpoint``, ``replay_endpoint`` and ``block_size`` (``kv_aware/vllm/kv_events.py``)."""

INGRESS_ROUTER: Final = "ray.llm._internal.serve.core.ingress.router"
"""The module in which Ray's own builder looks for the class ``LLMRouter``."""

_SERVE: Final = "serve/_private/request_router"
_LLM: Final = "llm/_internal/serve"
_KV: Final = f"{_LLM}/routing_policies/kv_aware"

PINNED: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_SERVE}/request_router.py": (
        (
            "async def choose_replicas(self, candidate_replicas: List[RunningReplica], "
            "pending_request: Optional[PendingRequest]=None) -> List[List[RunningReplica]]"
        ),
        "def initialize_state(self, **kwargs)",
        "def update_replicas(self, replicas: List[RunningReplica])",
        (
            "def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, "
            "result: ReplicaResult) -> None"
        ),
        "def on_replica_actor_died(self, replica_id: ReplicaID)",
        "queue_len_response_deadline_s = RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S",
        "def replica_queue_len_cache(self) -> ReplicaQueueLengthCache",
    ),
    f"{_SERVE}/common.py": (
        "def get(self, replica_id: ReplicaID) -> Optional[int]",
        "args: List[Any]",
        "kwargs: Dict[Any, Any]",
        "metadata: RequestMetadata",
    ),
    f"{_SERVE}/replica_wrapper.py": (
        "def routing_stats(self) -> Dict[str, Any]",
        "def replica_id(self) -> ReplicaID",
    ),
    f"{_KV}/constants.py": (f"REQUEST_TOKEN_IDS_KWARG = {TOKEN_IDS_KWARG!r}",),
    f"{_KV}/kv_aware_router.py": (
        "class KVAwareRouter(RequestRouter)",
        "def is_kv_aware(llm_config: LLMConfig) -> bool",
    ),
    f"{_KV}/vllm/kv_events.py": (f"return {{{EVENTS_KEY!r}: kv_event_metadata}}",),
    f"{_KV}/vllm/tokenizer.py": (
        "class Tokenizer",
        "async def tokenize(self, payload: Dict[str, Any]) -> Optional[List[int]]",
    ),
    f"{_LLM}/core/ingress/router.py": (
        "class LLMRouter",
        (
            "async def __init__(self, server: DeploymentHandle, "
            "llm_config: Optional['LLMConfig']=None, base_model_id: Optional[str]=None)"
        ),
        "self._tokenizer = await asyncio.to_thread(Tokenizer, llm_config)",
        (
            "def _push_prompt_tokens(self, *, token_endpoint: Optional[str], replica_id: str, "
            "request_token_ids: List[int]) -> Optional[str]"
        ),
        "choose_replica_kwargs[REQUEST_TOKEN_IDS_KWARG] = request_token_ids",
    ),
    f"{_LLM}/core/ingress/builder.py": (
        "def build_openai_app(builder_config: dict) -> Application",
        "from ray.llm._internal.serve.core.ingress.router import LLMRouter",
    ),
    f"{_LLM}/core/configs/llm_config.py": ("def get_engine_config(self) -> EngineConfigType",),
    f"{_LLM}/engines/vllm/vllm_models.py": (
        "engine_kwargs: Dict[str, Any] = {}",
        "frontend_kwargs: Dict[str, Any] = {}",
        "def actual_hf_model_id(self) -> str",
    ),
}
"""Of each file below Ray's package: definitions and statements, as `ast.unparse` writes them."""

if Version(ray.__version__) < Version(OLDEST):
    raise ImportError(
        f"mmroute.ray needs Ray {OLDEST} or later, found {ray.__version__}: "
        "pip install --upgrade 'mmroute[ray]'"
    )
