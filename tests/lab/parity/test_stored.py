"""Each block that an engine stores is compared; what vLLM's own pool announced is changed here."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from comparison import read_vectors
from paths import VECTORS

from mmroute.answering.pipeline import answer
from mmroute.engines.running import running_engine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events import BlockStored, EventBatch, decode_events
from mmroute.lab.engines.vllm.rehashing import told_by_events
from mmroute.lab.parity.cases import Case, Served
from mmroute.lab.parity.comparison import Finding, Verdict, our_outcome
from mmroute.lab.parity.events.chains import Chains
from mmroute.lab.parity.events.comparison import Announced, compare_announced
from mmroute.lab.parity.events.recordings import read_recording, recorded
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of

MODEL = "small-qwen2.5-vl"
CASES = [
    case
    for case in read_vectors(VECTORS / "settings" / f"{MODEL}.jsonl")[1]
    if case["setting"] == "defaults" and case["events"]
]


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> ResolvedModel:
    settings = VllmSettings.from_args(CASES[0]["arguments"])
    return resolve_model(str(small_model(MODEL)), engine_settings=settings)


def one(case: dict[str, Any], served: Served | None = None) -> Announced:
    payloads = map(base64.b64decode, case["events"])
    return Announced(
        Case(case["id"], "recorded", case["request"]),
        tuple(decode_events(payload) for payload in payloads),
        served or Served(),
    )


LONG = max(CASES, key=lambda case: max(map(len, case["events"])))


def changed(**fields: Any) -> Announced:
    """The longest request, with another event."""
    announced = one(LONG)
    batch = announced.batches[0]
    event = msgspec.structs.replace(batch.events[0], **fields)
    return dataclasses.replace(
        announced, batches=(EventBatch(batch.ts, (event,), batch.data_parallel_rank),)
    )


def stored() -> BlockStored:
    event = one(LONG).batches[0].events[0]
    assert isinstance(event, BlockStored)
    return event


def found(model: ResolvedModel, *announced: Announced) -> list[Finding]:
    return list(compare_announced(model, announced, alone=True))


def test_what_the_engine_stored_is_equal(model: ResolvedModel) -> None:
    assert {f.verdict for f in found(model, *map(one, CASES))} == {Verdict.EQUAL}


CHANGES = [
    ("a block that is not predicted", lambda e: {"block_hashes": (*e.block_hashes[:-1], 5)}),
    ("a block that is missing", lambda e: {
        "block_hashes": e.block_hashes[:-1], "token_ids": e.token_ids[: -e.block_size],
        "extra_keys": e.extra_keys[:-1],
    }),
    ("another parent", lambda e: {"parent_block_hash": e.block_hashes[0]}),
    ("a parent that is not predicted", lambda _: {"parent_block_hash": 5}),
    ("other tokens", lambda e: {"token_ids": (*e.token_ids[:-1], 7)}),
    ("other keys", lambda e: {"extra_keys": (("salt",), *e.extra_keys[1:])}),
    ("blocks in another order", lambda e: {"block_hashes": e.block_hashes[::-1]}),
]  # fmt: skip


@pytest.mark.parametrize("change", [c[1] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_differs_in_one_event_is_found(
    change: Callable[[BlockStored], dict[str, Any]], model: ResolvedModel
) -> None:
    announced = dataclasses.replace(changed(**change(stored())), served=told(model, 0))
    (finding,) = found(model, announced)
    assert finding.verdict is Verdict.SILENT


def told(model: ResolvedModel, cached: int) -> Served:
    ids = our_outcome(model, one(LONG).case).token_ids
    assert ids is not None
    return Served(None, ids, len(ids), cached)


def test_reused_tokens_are_predicted(model: ResolvedModel) -> None:
    """The second request finds all whole blocks, except where the last one is the prompt's end."""
    of_group = changed(group_idx=0, kv_cache_spec_kind="full_attention")
    first, size = dataclasses.replace(of_group, served=told(model, 0)), stored().block_size
    ids = first.served.token_ids
    assert ids is not None
    reused = (len(ids) - 1) // size * size
    again = dataclasses.replace(first, batches=(), served=told(model, reused))
    assert [f.verdict for f in found(model, first, again)] == [Verdict.EQUAL] * 2
    wrong = dataclasses.replace(again, served=told(model, reused - size))
    _, finding = found(model, first, wrong)
    assert finding.verdict is Verdict.SILENT
    assert f"predicted {reused}" in finding.note


def test_nothing_is_reused_by_a_request_that_reads_no_cache(model: ResolvedModel) -> None:
    of_group = changed(group_idx=0, kv_cache_spec_kind="full_attention")
    first = dataclasses.replace(of_group, served=told(model, 0))
    case = dataclasses.replace(first.case, request={**first.case.request, "reads_cache": False})
    again = dataclasses.replace(first, case=case, batches=())
    assert [f.verdict for f in found(model, first, again)] == [Verdict.EQUAL] * 2


def test_told_ids_are_compared_without_any_block(model: ResolvedModel) -> None:
    case = Case("short", "own", {"prompt_token_ids": [5, 6, 7]})
    same, other = (np.array(ids, np.uint32) for ids in ([5, 6, 7], [5, 6, 8]))
    verdicts = [
        finding.verdict
        for ids in (same, other)
        for finding in found(model, Announced(case, (), Served(None, ids, 3, 0)))
    ]
    assert verdicts == [Verdict.NO_BLOCK, Verdict.SILENT]


SIZE = 16


def other_seed(model: ResolvedModel, **settings: Any) -> ResolvedModel:
    """The model as a router has it that was told another seed."""
    known = dataclasses.replace(model.hashing.settings, seed="7", **settings)
    return dataclasses.replace(model, hashing=dataclasses.replace(model.hashing, settings=known))


def in_groups(
    model: ResolvedModel, ids: list[int], *, told: bool = True, **groups: slice
) -> Announced:
    """A prompt of which each group announces some blocks, and the tokens up to the last one."""
    request = request_of({"prompt_token_ids": ids})
    hashes = answer(model, request).block_hashes("sha256", seed="0", block_size=SIZE).event_ints()
    events = []
    for number, (kind, part) in enumerate(groups.items()):
        length = len(hashes[: part.stop]) * SIZE
        event = BlockStored(
            block_hashes=tuple(hashes[part]), parent_block_hash=None, lora_id=None,
            token_ids=tuple(ids[:length]), block_size=SIZE, medium="GPU", lora_name=None,
            extra_keys=(None,) * len(hashes[part]), group_idx=number, kv_cache_spec_kind=kind,
        )  # fmt: skip
        events.append(event)
    served = Served(None, np.array(ids, np.uint32) if told else None, len(ids), 0)
    case = Case("ids", "own", {"prompt_token_ids": ids})
    return Announced(case, (EventBatch(0.0, tuple(events), 0),), served)


def test_a_hybrid_model_without_its_block_size_is_named(model: ResolvedModel) -> None:
    """Its first group has states, and announces the last block alone."""
    router = other_seed(model, block_size=None, chosen_by_engine=True)
    sent = in_groups(model, [*range(5, 70)], mamba=slice(3, 4), full_attention=slice(0, 4))
    (finding,) = found(router, sent)
    assert finding.verdict is Verdict.UNNEEDED
    assert f"blocks have {SIZE} tokens, and mmroute was told none" in finding.note
    wrong = other_seed(model, block_size=32, chosen_by_engine=True)
    (finding,) = found(wrong, sent)
    assert finding.verdict is Verdict.SILENT
    told = [str(change) for change in told_by_events(wrong, Chains().enter(sent.batches))]
    assert told == [f"--prefix-match-unit {SIZE}", "PYTHONHASHSEED=0"]


@pytest.mark.parametrize("told", [True, False], ids=["IDs are told", "IDs are not told"])
def test_blocks_that_are_not_kept_are_no_other_tokens(model: ResolvedModel, *, told: bool) -> None:
    """Where groups have blocks of 16 and of 32 tokens, a prompt is kept in multiples of 32."""
    router = other_seed(model, prefix_step=2)
    sent = in_groups(model, [*range(5, 55)], told=told, full_attention=slice(0, 2))
    (finding,) = found(router, sent)
    assert finding.verdict is Verdict.SILENT
    assert "other hashes" in finding.note


def test_blocks_of_other_requests_count_only_where_there_are_none(model: ResolvedModel) -> None:
    first, other = one(LONG), changed(block_hashes=(5,), token_ids=(1,) * stored().block_size)
    both = dataclasses.replace(first, batches=(*other.batches, *first.batches))
    assert [f.verdict for f in compare_announced(model, [both])] == [Verdict.EQUAL]
    assert [f.verdict for f in found(model, both)] == [Verdict.SILENT]


def test_a_recording_keeps_what_was_told(model: ResolvedModel, tmp_path: Path) -> None:
    first = one(LONG, told(model, 0))
    path = tmp_path / "recording.jsonl"
    rust = running_engine("vllm", "0.32.0").behind("rust")
    running = dataclasses.replace(rust, model_string="org/name", max_model_len=4096)
    all_announced = [first, Announced(Case("b", "own", {}), (), Served("no"))]
    writing = recorded(path, iter(all_announced), running)
    assert next(writing) is first
    (_, line) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["cached_tokens"] == 0  # not kept back
    list(writing)
    engine, (again, refused) = read_recording(path)
    assert engine == running
    assert again.served.token_ids is not None
    assert first.served.token_ids is not None
    assert np.array_equal(again.served.token_ids, first.served.token_ids)
    length = len(first.served.token_ids)
    assert (again.served.num_tokens, again.served.cached_tokens) == (length, 0)
    assert refused.served.refusal == "no"
