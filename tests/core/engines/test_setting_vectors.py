"""Engines of vLLM, each started with a setting: the same IDs, ranges, identities and hashes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from comparison import expanded, read_vectors
from paths import VECTORS
from small_models import SMALL_MODELS, fingerprint

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events import BlockStored, decode_events
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.lines import request_of

pytestmark = pytest.mark.conformance

FILES = sorted((VECTORS / "settings").glob("*.jsonl"))


@cache
def lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return read_vectors(path)


def engines() -> Iterator[Any]:
    for path in FILES:
        for setting, cases in groupby(lines(path)[1], key=lambda case: case["setting"]):
            yield pytest.param(path.stem, list(cases), id=f"{path.stem}: {setting}")


def test_at_least_twelve_settings_are_recorded() -> None:
    assert len(list(engines())) > 20
    for path in FILES:
        meta, _ = lines(path)
        if path.stem != EMBEDDED_MODEL:
            assert meta["fingerprint"] == fingerprint(SMALL_MODELS[path.stem]())


@pytest.mark.parametrize(("model", "cases"), engines())
def test_answers_as_the_engine_started_so(
    model: str, cases: list[dict[str, Any]], small_model: Callable[[str], Path]
) -> None:
    directory = model if model == EMBEDDED_MODEL else str(small_model(model))
    settings = VllmSettings.from_args(cases[0]["arguments"])
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    for case in cases:
        routing = normalizer.answer(request_of(case["request"]))
        if "refused" in case:
            assert not routing.exact, case["id"]
            continue
        expect = case["expect"]
        assert routing.message == ""
        assert routing.token_ids.tolist() == expanded(expect["token_runs"]), case["id"]
        ranges = [{"offset": p.offset, "length": p.length} for p in routing.placeholders]
        assert ranges == expect["placeholders"], case["id"]
        if any(identity is None for identity in routing.identities):
            continue  # of a video
        assert [str(i) for i in routing.identities] == expect["mm_identifiers"], case["id"]
        hashes = routing.block_hashes()
        assert hashes.hex() == expect["block_hashes"], case["id"]
        published = [
            number
            for payload in case["events"]
            for event in decode_events(base64.b64decode(payload)).events
            if isinstance(event, BlockStored)
            for number in event.block_hashes
        ]
        assert hashes.event_ints() == published, case["id"]
