"""What we use of Ray's alpha and private parts is as it was when it was written."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import ray

from mmroute.server.ray.alpha import EVENTS_KEY

_SERVE: Final = "serve/_private/request_router"
_KV: Final = "llm/_internal/serve/routing_policies/kv_aware"

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
    f"{_KV}/vllm/kv_events.py": (f"return {{{EVENTS_KEY!r}: kv_event_metadata}}",),
}
"""Of each file below Ray's package: definitions and statements, as `ast.unparse` writes them."""


def shown(path: Path) -> set[str]:
    """Every statement of a module; of functions and classes the line that defines them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list, node.body = [], []
            found.add(ast.unparse(node).strip().removesuffix(":"))
        elif isinstance(node, ast.stmt):
            found.add(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", PINNED)
def test_ray_has_what_is_relied_on(path: str) -> None:
    statements = shown(Path(ray.__file__).parent / path)
    missing = [statement for statement in PINNED[path] if statement not in statements]
    assert not missing, (
        f"Ray {ray.__version__} has changed {path}: look at mmroute/server/ray, and then at PINNED"
    )


@pytest.mark.process
def test_importing_mmroute_loads_no_ray() -> None:
    code = "import sys, mmroute, mmroute.server.ray; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
