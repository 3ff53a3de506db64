"""What a running SGLang announced is found by content, whatever its settings hash by."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import VECTORS

from mmroute import Normalizer
from mmroute.engine import EngineSettings
from mmroute.kv_events import BlockIndex, WorkerRank
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.requests.lines import request_of

RECORDING = VECTORS / "recordings" / "sglang.jsonl"
RECORDED = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
SETTINGS = [line for line in RECORDED if line.get("kind") == "meta"]


@pytest.mark.parametrize("meta", SETTINGS, ids=lambda meta: meta["setting"])
def test_every_prompt_is_found(meta: dict[str, str], small_model: Callable[[str], Path]) -> None:
    settings = EngineSettings.from_args(meta["arguments"])
    normalizer = Normalizer.from_pretrained(
        small_model(meta["model"]), backend="sglang", engine_settings=settings
    )
    index, images = BlockIndex(by_content=True), 0
    for line in RECORDED:
        if "request" not in line or line["setting"] != meta["setting"]:
            continue
        for payload in line.get("events", ()):
            index.apply("w", base64.b64decode(payload))
        fields = dict(line["request"])
        if fields.get("messages"):
            fields["messages"] = with_pictures(fields["messages"], fields.pop("images", None))
        routing = normalizer.answer(request_of(fields))
        if None not in routing.identities:
            keys = routing.content_keys(index.block_size("w"))
            assert index.longest_prefixes(keys) == {WorkerRank("w", 0): len(keys)}
            assert len(keys) > 7
            images += len(routing.identities)
    assert images > 0 or meta["setting"] == "features"
