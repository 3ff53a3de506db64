"""Wrong settings, each planted, and found by the events that vLLM's own block pool sends."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from comparison import read_vectors
from paths import VECTORS

from mmroute.answering.pipeline import answer
from mmroute.engines.running import Evidence, RunningEngine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import EventsError, RandomSeedWarning
from mmroute.kv_events import BlockRemoved, BlockStored, EventBatch, decode_events
from mmroute.lab.parity.cases import Case, Outcome, Served
from mmroute.lab.parity.causes import Cause, Diagnosis
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.lab.parity.events.comparison import (
    Announced,
    compare_announced,
    compare_watched,
    proposal,
)
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.lab.parity.report import as_json, report_of, verdict_of
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of as to_request

MODEL = "small-qwen2.5-vl"
FEW_SEEDS = (None, "0", "7")  # where none of them is the one
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


# What the engine was started with, the cause by name, and the setting that is proposed.
PLANTED = [
    ("model string", "model_string", "--model ./small-qwen2.5-vl"),
    ("seed", "seed", "PYTHONHASHSEED=7"),
    ("hash algorithm", "algorithm", "--prefix-caching-hash-algo sha256_cbor"),
    ("algorithm and seed", "algorithm", "PYTHONHASHSEED=42"),
    ("block size", "block_size", "--block-size 32"),
    ("chat template", "other", None),
    ("content format", "template", "--chat-template-content-format string"),
    ("processor arguments", "processor_argument", "--mm-processor-kwargs"),
    ("identity algorithm", "identities_only", "--mm-hasher-algorithm sha256"),
    ("adapters in towers", "identities_only", "--enable-tower-connector-lora"),
    ("limits", "limit", "--limit-mm-per-prompt"),
    ("no media", "limit", "--limit-mm-per-prompt"),
    ("image pixels", "limit", "VLLM_MAX_IMAGE_PIXELS=5000"),
]


@pytest.mark.parametrize(("setting", "cause", "proposed"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_wrong_setting_is_found_and_named(
    setting: str, cause: str, proposed: str | None, findings: Callable[..., list[Finding]]
) -> None:
    found = findings(setting, f"vllm serve {MODEL}")
    wrong = [f for f in found if f.verdict is Verdict.SILENT]
    assert {f.diagnosis.cause.value for f in wrong if f.diagnosis} == {cause}
    if proposed is None:
        return
    settings = proposal(found)
    assert [s for s in settings if s.startswith(proposed)], settings
    environment = [s for s in settings if not s.startswith("--")]
    options = [s for s in settings if s not in environment]
    line = " ".join([*environment, "vllm serve", MODEL, *options])
    again = findings(setting, line)
    assert not [f for f in again if f.verdict is Verdict.SILENT]


# What mmroute was told that the engine does not have, the cause, and the option to take out.
NOT_THE_ENGINE_S = [
    ("PYTHONHASHSEED=3 vllm serve small-qwen2.5-vl", "seed", "PYTHONHASHSEED"),
    (
        "vllm serve small-qwen2.5-vl --chat-template \"{{ 'no' }}{{ messages }}\"",
        "template",
        "--chat-template",
    ),
]


@pytest.mark.parametrize(("told", "cause", "name"), NOT_THE_ENGINE_S)
def test_what_the_engine_does_not_have_is_taken_out(
    told: str, cause: str, name: str, findings: Callable[..., list[Finding]]
) -> None:
    found = findings("defaults", told)
    wrong = [f for f in found if f.verdict is Verdict.SILENT]
    assert {f.diagnosis.cause.value for f in wrong if f.diagnosis} == {cause}
    assert proposal(found) == (f"take {name} out of the line",)


@pytest.mark.parametrize("told", [MODEL.upper(), MODEL.title()])
def test_a_model_string_in_another_letter_case_is_found(
    told: str, small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = tmp_path / told
    shutil.copytree(small_model(MODEL), directory)
    settings = VllmSettings.from_args(f"vllm serve {told}")
    model = resolve_model(str(directory), engine_settings=settings)
    assert proposal(compare_announced(model, recorded("defaults"))) == (f"--model {MODEL}",)


def test_a_model_string_is_found_in_the_files_of_the_model(
    changed_model: Callable[..., Path],
) -> None:
    def change(files: Any) -> None:
        files["config.json"]["_name_or_path"] = MODEL

    directory = changed_model(MODEL, change)
    settings = VllmSettings.from_args("vllm serve other")
    model = resolve_model(str(directory), engine_settings=settings)
    assert proposal(compare_announced(model, recorded("defaults"))) == (f"--model {MODEL}",)


def test_earlier_requests_do_not_matter_where_blocks_of_a_request_were_stored(
    findings: Callable[..., list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be read again for each request, which takes minutes for a hundred."""
    monkeypatch.setattr("mmroute.lab.parity.events.chains.Chains.with_tokens", None)
    found = findings("seed", f"vllm serve {MODEL}")
    assert {f.diagnosis.cause.value for f in found if f.diagnosis} == {"seed"}


def test_an_algorithm_without_its_seed_is_found_and_named(
    findings: Callable[..., list[Finding]],
) -> None:
    """No hash can be predicted, as each process of an engine draws such a seed at random."""
    with pytest.warns(RandomSeedWarning):
        found = findings("seed", f"vllm serve {MODEL} --prefix-caching-hash-algo xxhash")
    causes = {f.diagnosis.cause.value for f in found if f.diagnosis}
    assert causes == {"algorithm"}
    assert {"--prefix-caching-hash-algo sha256", "PYTHONHASHSEED=7"} <= set(proposal(found))


def test_another_era_is_found_and_named(small_model: Callable[[str], Path]) -> None:
    """The first block under a salt was hashed otherwise before vLLM 0.31."""
    model = resolve_model(str(small_model(MODEL)), backend="vllm==0.30.0")
    one = request_of("defaults", "salted text")
    (found,) = compare_announced(model, [one])
    assert found.diagnosis is not None
    assert found.diagnosis.cause.value == "layout"
    assert "--backend vllm==VERSION" in found.diagnosis.explanation


def test_a_forgotten_adapter_is_found_and_named(
    resolved: ResolvedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmroute.lab.parity.events.hashings._SEEDS", FEW_SEEDS)
    one = request_of("adapters", "adapter")
    for lora, named in ((None, "'sql'"), ({"lora_name": "sql", "lora_path": "/old"}, "path")):
        case = Case("a", "recorded", {**one.case.request, "lora": lora})
        (found,) = compare_announced(resolved, [Announced(case, one.batches)])
        assert found.diagnosis is not None
        assert found.diagnosis.cause.value == "lora"
        assert named in found.diagnosis.explanation


def test_another_salt_is_found_and_named(resolved: ResolvedModel) -> None:
    one = request_of("defaults", "salted text")
    case = Case("a", "recorded", {**one.case.request, "cache_salt": "other"})
    (found,) = compare_announced(resolved, [Announced(case, one.batches)])
    assert found.diagnosis is not None
    assert found.diagnosis.cause.value == "cache_salt"


@pytest.mark.parametrize(
    ("setting", "causes", "wrong"),
    [
        ("defaults", set(), set()),
        ("seed", {"seed"}, {"text", "salted text", "image", "two images"}),
        ("model string", {"hashes_only"}, {"image", "two images"}),
    ],
)
def test_events_without_extra_keys(
    setting: str,
    causes: set[str],
    wrong: set[str],
    resolved: ResolvedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the hashes cover beside the tokens is predicted then."""
    monkeypatch.setattr("mmroute.lab.parity.events.hashings._SEEDS", FEW_SEEDS)
    untold = [
        Announced(one.case, tuple(map(without_extra_keys, one.batches)), one.served)
        for one in recorded(setting)
        if one.batches
    ]
    found = list(compare_announced(resolved, untold))
    assert {f.diagnosis.cause.value for f in found if f.diagnosis} == causes
    assert {f.case.id.split(": ")[1] for f in found if f.verdict is Verdict.SILENT} == wrong


def without_extra_keys(batch: EventBatch) -> EventBatch:
    events = [
        msgspec.structs.replace(event, extra_keys=None) if isinstance(event, BlockStored) else event
        for event in batch.events
    ]
    return msgspec.structs.replace(batch, events=tuple(events))


def test_watching_tells_how_blocks_are_hashed(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model(MODEL)))
    batches = [b for one in recorded("algorithm and seed") for b in one.batches]
    found = list(compare_watched(model, batches))
    assert len(found) == 4
    assert set(proposal(found)) == {"--prefix-caching-hash-algo xxhash", "PYTHONHASHSEED=42"}
    right = VllmSettings.from_args("PYTHONHASHSEED=42 vllm serve --prefix-caching-hash-algo xxhash")
    told = resolve_model(str(small_model(MODEL)), engine_settings=right)
    assert {f.verdict for f in compare_watched(told, batches)} == {Verdict.EQUAL}


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
    assert {f.diagnosis.cause.value for f in found if f.diagnosis} == {"block_size"}
    assert proposal(found) == ("--block-size 16",)


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
    report = report_of(model, "engine", list(compare_announced(model, engine)), None)
    assert set(report.verdicts) == {Verdict.NO_BLOCK}
    assert report.parity is None
    last = verdict_of(report)
    assert last.startswith("not decided: 0 of 0 answers are equal; no block of 8 requests was")
    assert "send prompts that are longer than a block" in last
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
    assert {f.diagnosis.cause.value for f in found if f.diagnosis} == {"seed"}


def test_blocks_of_others_prove_nothing(resolved: ResolvedModel) -> None:
    """A worker may answer others meanwhile, whose prompts begin otherwise."""
    other = next(one for one in recorded("defaults") if one.batches)
    case = Case("short", "own", {"prompt_token_ids": [5, 6, 7]})
    told = Served(None, np.array([5, 6, 7], np.uint32))
    for served, verdict in ((told, Verdict.NO_BLOCK), (Served(), Verdict.UNDECIDED)):
        (found,) = compare_announced(resolved, [Announced(case, other.batches, served)])
        assert found.verdict is verdict


# Source: vLLM ``renderers/params.py``, ``v1/engine/input_processor.py``.
REFUSALS = [
    "This model's maximum context length is 64 tokens. However, your prompt contains 70 tokens.",
    "The decoder prompt (length 70) is longer than the maximum model length of 64. Make sure that",
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_shorter_context_is_found_and_named(
    refusal: str, small_model: Callable[[str], Path]
) -> None:
    model = resolve_model(str(small_model(MODEL)))
    case = Case("long", "recorded", {"prompt_token_ids": [5] * 70})
    (finding,) = compare_announced(model, [Announced(case, served=Served(refusal))])
    assert finding.verdict is Verdict.SILENT
    assert finding.diagnosis is not None
    assert finding.diagnosis.cause is Cause.CONTEXT
    assert proposal([finding]) == ("--max-model-len 64",)
    short = VllmSettings.from_args("vllm serve x --max-model-len 64")
    model = resolve_model(str(small_model(MODEL)), engine_settings=short)
    (finding,) = compare_announced(model, [Announced(case, served=Served(refusal))])
    assert finding.verdict is Verdict.REFUSED


def test_an_encoder_that_is_too_small_is_no_shorter_context(
    small_model: Callable[[str], Path],
) -> None:
    refusal = "The encoder prompt (length 70) is longer than the maximum model length of 64."
    case = Case("long", "recorded", {"prompt_token_ids": [5] * 70})
    model = resolve_model(str(small_model(MODEL)))
    (finding,) = compare_announced(model, [Announced(case, served=Served(refusal))])
    assert finding.diagnosis is not None
    assert finding.diagnosis.cause is Cause.ORACLE_REFUSES


def test_a_longer_context_is_found_by_what_the_server_tells(
    small_model: Callable[[str], Path],
) -> None:
    settings = VllmSettings.from_args("vllm serve x --max-model-len 64")
    model = resolve_model(str(small_model(MODEL)), engine_settings=settings)
    ids = [5] * 70
    one = Announced(
        Case("long", "recorded", {"prompt_token_ids": ids}),
        served=Served(None, np.array(ids, np.uint32)),
    )
    running = RunningEngine("vllm", "0.33.0", Evidence.PROVED, None, max_model_len=128)
    (finding,) = compare_announced(model, [one], running=running)
    assert finding.verdict is Verdict.UNNEEDED
    assert proposal([finding]) == ("--max-model-len 128",)
    (finding,) = compare_announced(model, [one])
    assert proposal([finding]) == ()


def test_a_larger_limit_is_found_by_what_the_engine_answers(
    findings: Callable[..., list[Finding]],
) -> None:
    """The other limits stay, as a later value of the option replaces an earlier one."""
    given = """vllm serve x --limit-mm-per-prompt '{"image": 1, "video": 3}'"""
    (two,) = [f for f in findings("defaults", given) if f.verdict is Verdict.UNNEEDED]
    assert two.case.id == "defaults: two images"
    assert proposal([two]) == ("""--limit-mm-per-prompt '{"image": 2, "video": 3}'""",)


def test_an_argument_is_proposed_beside_those_that_were_given(
    findings: Callable[..., list[Finding]],
) -> None:
    given = """vllm serve small-qwen2.5-vl --mm-processor-kwargs '{"min_pixels": 3136}'"""
    (setting,) = proposal(findings("processor arguments", given))
    assert json.loads(shlex.split(setting)[1]).keys() == {"min_pixels", "max_pixels"}


@pytest.mark.parametrize("told", [True, False], ids=["the server tells", "unknown"])
def test_a_wrong_number_is_no_other_frontend_where_the_server_tells_its_own(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    """Another frontend reads other fields, so that its counts may be those of a right spec."""
    directory = str(small_model(MODEL))
    engine, wrong = (
        resolve_model(directory, engine_settings=VllmSettings.from_args(line))
        for line in (
            f"vllm serve {MODEL}",
            f"vllm serve {MODEL} --mm-processor-kwargs '{{\"min_pixels\": 50000}}'",
        )
    )
    monkeypatch.setattr("mmroute.lab.parity.remedies._resolved", lambda *_: engine)
    running = RunningEngine("vllm", "0.33.0", Evidence.PROVED, None) if told else None
    found = compare_announced(wrong, recorded("defaults"), running=running)
    causes = {f.diagnosis.cause for f in found if f.diagnosis is not None}
    assert causes == {Cause.PROCESSOR_ARGUMENT if told else Cause.FRONTEND}


def test_settings_that_exclude_each_other_are_not_proposed_together() -> None:
    """One request may look like the other frontend's by chance."""
    ids = Outcome(np.zeros(1, np.uint32))

    def finding(*settings: str) -> Finding:
        diagnosis = Diagnosis(Cause.OTHER, 0, "", settings)
        return Finding(Case("a", "b", {}), ids, ids, Verdict.SILENT, diagnosis)

    template, frontend = ("--chat-template x.jinja",), ("VLLM_USE_RUST_FRONTEND=1",)
    assert proposal([finding(*s) for s in (frontend, template, (), template, ())]) == template
    assert proposal([finding()]) == ()


def test_an_extra_key_of_another_form_is_malformed(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model(MODEL)))
    event = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None,
             "token_ids": [3] * 16, "block_size": 16, "lora_id": None, "lora_name": None,
             "medium": "GPU", "extra_keys": [[["mm", "7522ad", 0]]]}  # fmt: skip
    batch = decode_events(msgspec.msgpack.encode([0.0, [event]]))
    with pytest.raises(EventsError, match="identity of an item and its offset, found"):
        list(compare_watched(model, [batch]))
