"""How vLLM is started on a shrunken copy of a model, asked and judged."""

from mmroute.engines.vllm.serve_command import parse_command
from mmroute.errors import Reason
from mmroute.lab.engines.vllm.asking import generation
from mmroute.lab.engines.vllm.changes import changes
from mmroute.lab.engines.vllm.environment import NEWEST, engine_environment, installed_version
from mmroute.lab.engines.vllm.rehashing import (
    OTHER_HASHES,
    SPECULATION,
    UNKNOWN_HASHES,
    event_ids,
    event_keys,
    lookahead,
    rehashed,
    reused_tokens,
    told_by_events,
    unpredicted,
)
from mmroute.lab.engines.vllm.start import adopted, start_engine
from mmroute.lab.parity.oracles.http import told_by as served

HARMFUL: frozenset[Reason] = frozenset()
LABEL = "vLLM"

__all__ = [
    "HARMFUL", "LABEL", "NEWEST", "OTHER_HASHES", "SPECULATION",
    "UNKNOWN_HASHES", "adopted", "changes", "engine_environment", "event_ids", "event_keys",
    "generation", "installed_version", "lookahead", "parse_command", "rehashed", "reused_tokens",
    "served", "start_engine", "told_by_events", "unpredicted",
]  # fmt: skip
