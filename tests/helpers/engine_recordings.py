"""What engines with vLLM's own code announced of a small model's requests, by their settings."""

from __future__ import annotations

import base64

from comparison import read_vectors
from paths import VECTORS

from mmroute.kv_events import decode_events
from mmroute.lab.parity.cases import Case, Served
from mmroute.lab.parity.events.comparison import Announced

MODEL = "small-qwen2.5-vl"
CASES = read_vectors(VECTORS / "settings" / f"{MODEL}.jsonl")[1]


def recorded(setting: str) -> list[Announced]:
    """What the engine started so announced of each request."""
    return [
        Announced(
            Case(case["id"], "recorded", case["request"]),
            tuple(decode_events(base64.b64decode(payload)) for payload in case["events"]),
            Served(case.get("refused")),
        )
        for case in CASES
        if case["setting"] == setting
    ]
