"""The blocks of requests are compared with the events that vLLM's own block pool sends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from engine_recordings import CASES, MODEL, recorded

from mmroute.answering.pipeline import answer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import EventsError
from mmroute.kv_events import BlockRemoved, BlockStored, EventBatch, decode_events
from mmroute.lab.parity.cases import Case, Served
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.lab.parity.events.comparison import Announced, compare_announced, compare_watched
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.lab.parity.report import Report, as_json, verdict_of
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of as to_request


def request_of(setting: str, name: str) -> Announced:
    (one,) = [one for one in recorded(setting) if one.case.id.endswith(name)]
    return one


@pytest.fixture
def findings(small_model: Callable[[str], Path]) -> Callable[..., list[Finding]]:
    def compared(setting: str, arguments: str, **resolved: Any) -> list[Finding]:
        settings = VllmSettings.from_args(arguments)
        model = resolve_model(str(small_model(MODEL)), engine_settings=settings, **resolved)
        return list(compare_announced(model, recorded(setting)))

    return compared


@pytest.fixture(scope="module")
def resolved(small_model: Callable[[str], Path]) -> ResolvedModel:
    """The model as an engine without options has it."""
    settings = VllmSettings.from_args(f"vllm serve {MODEL}")
    return resolve_model(str(small_model(MODEL)), engine_settings=settings)


RIGHT = sorted({case["setting"]: case["arguments"] for case in CASES}.items())
LEFT_OUT = {"media arguments"}  # the name of a video is not known, and so no hash


@pytest.mark.parametrize(
    ("setting", "arguments"), [right for right in RIGHT if right[0] not in LEFT_OUT]
)
def test_right_settings_are_equal(
    setting: str, arguments: str, findings: Callable[..., list[Finding]]
) -> None:
    found = findings(setting, arguments)
    assert {f.verdict for f in found} <= {Verdict.EQUAL, Verdict.REFUSED, Verdict.UNDECIDED}
    assert [f.case.id for f in found if f.verdict is Verdict.UNDECIDED] == [
        one.case.id for one in recorded(setting) if not one.batches and one.served.refusal is None
    ]


def test_another_adapter_or_salt_is_shown(resolved: ResolvedModel) -> None:
    sql = request_of("adapters", "adapter")
    salted = request_of("defaults", "salted text")
    for one, change, named in (
        (sql, {"lora": None}, "extra keys ('sql',"),
        (sql, {"lora": {"lora_name": "sql", "lora_path": "/old"}}, "path of an adapter"),
        (salted, {"cache_salt": "other"}, "mmroute predicts ('other',)"),
    ):
        case = Case("a", "recorded", {**one.case.request, **change})
        (found,) = compare_announced(resolved, [Announced(case, one.batches)])
        assert found.verdict is Verdict.SILENT
        assert named in found.note


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("defaults", set()),
        ("seed", {"text", "salted text", "image", "two images"}),
        ("model string", {"image", "two images"}),
    ],
)
def test_events_without_extra_keys(setting: str, wrong: set[str], resolved: ResolvedModel) -> None:
    """What the hashes cover beside the tokens is predicted then."""
    untold = [
        Announced(one.case, tuple(map(without_extra_keys, one.batches)), one.served)
        for one in recorded(setting)
        if one.batches
    ]
    found = list(compare_announced(resolved, untold))
    assert {f.case.id.split(": ")[1] for f in found if f.verdict is Verdict.SILENT} == wrong


def without_extra_keys(batch: EventBatch) -> EventBatch:
    events = [
        msgspec.structs.replace(event, extra_keys=None) if isinstance(event, BlockStored) else event
        for event in batch.events
    ]
    return msgspec.structs.replace(batch, events=tuple(events))


def test_blocks_that_were_announced_before_are_equal_too(resolved: ResolvedModel) -> None:
    (first, *_) = recorded("defaults")
    found = list(compare_announced(resolved, [first, Announced(first.case)]))
    assert [f.verdict for f in found] == [Verdict.EQUAL, Verdict.EQUAL]
    (unheard,) = compare_announced(resolved, [Announced(first.case)])
    assert unheard.verdict is Verdict.UNDECIDED
    assert "none of its blocks" in unheard.note


@pytest.mark.parametrize("told", [True, False], ids=["the server tells the IDs", "untold"])
def test_blocks_that_were_announced_where_none_is_predicted_differ(
    small_model: Callable[[str], Path], *, told: bool
) -> None:
    """Under a block size that no prompt reaches, not one hash is predicted."""
    settings = VllmSettings.from_args(f"vllm serve {MODEL} --block-size 4096")
    model = resolve_model(str(small_model(MODEL)), engine_settings=settings)
    engine = [one for one in recorded("defaults") if one.batches]
    if told:
        engine = [Announced(one.case, one.batches, served_ids(model, one)) for one in engine]
    found = list(compare_announced(model, engine))
    assert {f.verdict for f in found} == {Verdict.SILENT}
    assert all("blocks have 16 tokens" in f.note for f in found)


def served_ids(model: ResolvedModel, one: Announced) -> Served:
    fields = dict(one.case.request)
    if "messages" in fields:
        fields["messages"] = with_pictures(fields["messages"], fields.pop("images", None))
    return Served(token_ids=answer(model, to_request(fields)).token_ids)


@pytest.mark.parametrize("size", [16, 4096], ids=["the engine's blocks are larger", "ours are"])
def test_nothing_announced_is_nothing_compared(
    small_model: Callable[[str], Path], size: int
) -> None:
    """No block size is proved by prompts of which no block is announced."""
    settings = VllmSettings.from_args(f"vllm serve {MODEL} --block-size {size}")
    model = resolve_model(str(small_model(MODEL)), engine_settings=settings)
    engine = [Announced(one.case, (), served_ids(model, one)) for one in recorded("defaults")]
    report = Report(model, "engine", tuple(compare_announced(model, engine)))
    assert set(report.verdicts) == {Verdict.NO_BLOCK}
    assert report.parity is None
    assert "send prompts that are longer than a block" in verdict_of(report)
    assert as_json(report)["verdicts"]["no_block"] == len(engine)


def test_evicted_blocks_do_not_hide_other_hashes(resolved: ResolvedModel) -> None:
    """What is missing may have been evicted, but what was stored has the engine's hashes."""
    evicted = EventBatch(0.0, (BlockRemoved((1,), "GPU"),))
    engine = [
        Announced(one.case, (*one.batches, evicted), one.served)
        for one in recorded("seed")
        if one.batches
    ]
    found = list(compare_announced(resolved, engine))
    assert {f.verdict for f in found} == {Verdict.SILENT}
    assert all("other hashes" in f.note for f in found if f.verdict is Verdict.SILENT)


def test_blocks_of_others_prove_nothing(resolved: ResolvedModel) -> None:
    """A worker may answer others meanwhile, whose prompts begin otherwise."""
    other = next(one for one in recorded("defaults") if one.batches)
    case = Case("short", "own", {"prompt_token_ids": [5, 6, 7]})
    told = Served(None, np.array([5, 6, 7], np.uint32))
    for served, verdict in ((told, Verdict.NO_BLOCK), (Served(), Verdict.UNDECIDED)):
        (found,) = compare_announced(resolved, [Announced(case, other.batches, served)])
        assert found.verdict is verdict


def test_an_extra_key_of_another_form_is_malformed(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model(MODEL)))
    event = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None,
             "token_ids": [3] * 16, "block_size": 16, "lora_id": None, "lora_name": None,
             "medium": "GPU", "extra_keys": [[["mm", "7522ad", 0]]]}  # fmt: skip
    batch = decode_events(msgspec.msgpack.encode([0.0, [event]]))
    with pytest.raises(EventsError, match="identity of an item and its offset, found"):
        list(compare_watched(model, [batch]))
