"""How SGLang is started on a shrunken copy of a model, asked and judged."""

from mmroute.engines.sglang.options import parse_command
from mmroute.errors import Reason
from mmroute.lab.engines.sglang.asking import generation, served
from mmroute.lab.engines.sglang.changes import changes
from mmroute.lab.engines.sglang.environment import NEWEST, engine_environment, installed_version
from mmroute.lab.engines.sglang.rehashing import (
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
from mmroute.lab.engines.sglang.start import adopted, start_engine

# Pictures beside a typed placeholder of Qwen3.5 are never answered, and end a server of Gemma 3.
HARMFUL = frozenset({Reason.PLACEHOLDER_COUNT_MISMATCH, Reason.TOKEN_OUT_OF_VOCABULARY})
LABEL = "SGLang"

__all__ = [
    "HARMFUL", "LABEL", "NEWEST", "OTHER_HASHES", "SPECULATION",
    "UNKNOWN_HASHES", "adopted", "changes", "engine_environment", "event_ids", "event_keys",
    "generation", "installed_version", "lookahead", "parse_command", "rehashed", "reused_tokens",
    "served", "start_engine", "told_by_events", "unpredicted",
]  # fmt: skip
