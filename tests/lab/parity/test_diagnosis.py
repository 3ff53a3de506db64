"""The names that `mmroute validate` gives to what is wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_helpers import RightEngine

from mmroute import Normalizer
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.engines.vllm.settings import VllmSettings, as_vllm
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.causes import Cause, Diagnosis
from mmroute.lab.parity.comparison import (
    Finding,
    Verdict,
    compare,
    our_outcome,
    with_foreign_template,
)
from mmroute.lab.parity.diagnosis import diagnose
from mmroute.lab.parity.oracles.vectors import VectorsOracle, write_vectors
from mmroute.lab.parity.report import Report, as_lines
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds

OF_SIZES = {"rounding", "limits", "aspect", "tiny", "order"}
IMAGE = {"type": "image"}

Load = Callable[[str], Normalizer]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def chat(*parts: Any, sizes: tuple[tuple[int, int], ...] = (), **options: Any) -> Case:
    images = [{"width": width, "height": height} for width, height in sizes]
    messages = [{"role": "user", "content": list(parts)}]
    return Case("c", "test", {"messages": messages, "images": images, **options})


def one(width: int, height: int) -> Case:
    return chat(IMAGE, text("What?"), sizes=((width, height),))


def diagnosed(faulty: Normalizer, right: Normalizer, case: Case) -> Diagnosis:
    (finding,) = compare(faulty.model, RightEngine(right.model), [case])
    assert finding.verdict is Verdict.SILENT, finding
    assert finding.diagnosis is not None
    return finding.diagnosis


def answered(normalizer: Normalizer, case: Case) -> tuple[Outcome, TokenIds]:
    answer = our_outcome(normalizer.model, case)
    assert answer.token_ids is not None, answer.refusal
    return answer, answer.token_ids


def with_geometry(normalizer: Normalizer, **changes: Any) -> Normalizer:
    images = normalizer.model.media[Modality.IMAGE]
    geometry: Any = images.geometry
    wrong = replace(geometry, grid=replace(geometry.grid, **changes))
    images = replace(images, geometry=wrong)
    # The Rust frontend does not start with such a setting, so it is no other explanation.
    settings = replace(as_vllm(normalizer.model.settings), mm_processor_kwargs=changes)
    engine = replace(normalizer.model.engine, settings=settings)
    return Normalizer(replace(normalizer.model, media={Modality.IMAGE: images}, engine=engine))


# The diagnosis: each fault is planted in mmroute, or in the oracle's answer


@pytest.mark.parametrize("name", ["small-llava-1.5", "small-pixtral-hf", EMBEDDED_MODEL])
@pytest.mark.parametrize("added", [True, False])
def test_special_tokens_are_named_as_the_cause(name: str, added: bool, normalizer: Load) -> None:
    model = normalizer(name)
    cases = [
        Case("c", "test", {"prompt": "Hello there", "add_special_tokens": value})
        for value in (added, not added)
    ]
    ours, theirs = (our_outcome(model.model, case) for case in cases)
    found = diagnose(model.model, cases[0], ours, theirs, arguments_found=[])
    assert found.cause is Cause.SPECIAL_TOKENS
    assert f"add_special_tokens {str(not added).lower()}" in found.explanation


@pytest.mark.parametrize("rust", [0, 1])
def test_the_other_frontend(rust: int, small_model: Callable[[str], Path]) -> None:
    model = small_model("small-phi-3-vision")
    ours, theirs = (
        Normalizer.from_pretrained(model, engine_settings=settings)
        for settings in (VllmSettings(), RustSettings())[:: 1 - 2 * rust]
    )
    # Texts of several parts are joined by a line break, or by nothing.
    case = Case("c", "test", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "a"},
        {"role": "assistant", "content": [text("one"), text("two")]},
        {"role": "user", "content": "Hi"}]})  # fmt: skip
    found = diagnosed(ours, theirs, case)
    assert found.cause is Cause.FRONTEND
    assert found.alternatives == (f"VLLM_USE_RUST_FRONTEND={1 - rust}",)


@pytest.mark.parametrize(
    ("name", "wrong", "argument"),
    [
        ("small-qwen2-vl", {"max_pixels": 1003520}, {"max_pixels": 12845056}),
        ("small-qwen2.5-vl", {"min_pixels": 200704}, {"min_pixels": 3136}),
        ("small-phi-3-vision", {"num_crops": 4}, {"num_crops": 16}),
    ],
)
def test_a_processor_argument(
    name: str,
    wrong: dict[str, Any],
    argument: dict[str, Any],
    normalizer: Load,
    suite: Callable[[str], list[Case]],
) -> None:
    """What is proposed gives all of the oracle's answer."""
    model = normalizer(name)
    faulty = with_geometry(model, **wrong)
    sizes = [case for case in suite(name) if case.kind in OF_SIZES][::4]
    findings = list(compare(faulty.model, RightEngine(model.model), sizes))
    found = [f for f in findings if f.verdict is Verdict.SILENT]
    (field,) = argument
    proposed = set()
    for finding in found:
        assert finding.diagnosis is not None
        assert finding.theirs is not None
        assert finding.theirs.token_ids is not None
        assert finding.diagnosis.cause is Cause.PROCESSOR_ARGUMENT, finding.diagnosis
        (setting,) = finding.diagnosis.alternatives
        option, value = shlex.split(setting)
        assert option == "--mm-processor-kwargs"
        assert json.loads(value).keys() == {field}
        request = {**finding.case.request, "mm_processor_kwargs": json.loads(value)}
        _, again = answered(faulty, replace(finding.case, request=request))
        assert np.array_equal(again, finding.theirs.token_ids)
        proposed.add(setting)
    assert proposed
    assert len(proposed) < max(len(found), 2), "what was found is tried first for the next"


def test_other_text_behind_an_image_is_no_wrong_count(normalizer: Load) -> None:
    """A template may put words behind the header of an answer."""
    model = normalizer("small-qwen2-vl")
    case = one(300, 200)
    ours, ids = answered(model, case)
    for theirs in (np.append(ids, ids[:3]).astype(np.uint32), ids[:-1]):
        found = diagnose(model.model, case, ours, Outcome(theirs), arguments_found=[])
        assert found.cause is Cause.OTHER


def test_a_count_that_nothing_explains(normalizer: Load) -> None:
    model = normalizer("small-qwen2-vl")
    case = one(300, 200)
    ours, ids = answered(model, case)
    ((offset, _),) = ours.ranges or ()
    theirs = Outcome(np.insert(ids, offset, [ids[offset]] * 6).astype(np.uint32))
    found = diagnose(model.model, case, ours, theirs, arguments_found=[])
    assert found.cause is Cause.WRONG_COUNT
    assert found.alternatives == ()
    assert f"{len(ids)} token IDs and the oracle {len(ids) + 6}" in found.explanation


def test_another_template_is_named_as_the_cause(normalizer: Load) -> None:
    """LLaVA-OneVision's processor and tokenizer have a template each."""
    right = normalizer("small-llava-onevision")
    model_chat = right.model.chat
    assert isinstance(model_chat, HfChat)
    faulty = Normalizer(
        replace(right.model, chat=replace(model_chat, template=model_chat.tool_template))
    )
    found = diagnosed(faulty, right, one(300, 200))
    assert found.cause is Cause.TEMPLATE
    assert "The oracle renders the chat template of chat_template.json" in found.explanation


def test_a_foreign_template(changed_model: Callable[..., Path], normalizer: Load) -> None:
    """It is told apart from other files of a tokenizer by prompts of text, which stay equal."""

    def foreign(files: dict[str, Any]) -> None:
        files["chat_template.json"]["chat_template"] = (
            "{% for m in messages %}### {{ m.role }}: {% if m.content is string %}{{ m.content }}"
            "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
        )

    ours = normalizer("small-qwen2.5-vl")
    theirs = Normalizer.from_pretrained(str(changed_model("small-qwen2.5-vl", foreign)))
    prompt = Case("p", "test", {"prompt": "The cat sat on the mat."})
    cases = [prompt, chat(text("What?")), chat(text("And why?"))]

    def causes(cases: list[Case], oracle: Normalizer = theirs) -> list[Cause]:
        found = list(compare(ours.model, RightEngine(oracle.model), cases))
        return [f.diagnosis.cause for f in with_foreign_template(found) if f.diagnosis]

    assert causes(cases) == [Cause.TEMPLATE] * 2
    assert causes(cases[1:]) == [Cause.OTHER] * 2, "no prompt tells that the tokenizer is the same"
    assert causes(cases, ours) == []


def test_a_switch_of_the_template(changed_model: Callable[..., Path]) -> None:
    def add_switch(files: dict[str, Any]) -> None:
        files["chat_template.json"]["chat_template"] += (
            "{% if enable_thinking is false %}<think>{% endif %}"
        )

    model = Normalizer.from_pretrained(str(changed_model("small-qwen2.5-vl", add_switch)))
    case = one(60, 60)
    switch = {"chat_template_kwargs": {"enable_thinking": False}}
    off = replace(case, request={**case.request, **switch})
    ours, theirs = our_outcome(model.model, case), our_outcome(model.model, off)
    found = diagnose(model.model, case, ours, theirs, arguments_found=[])
    assert found.cause is Cause.TEMPLATE
    assert found.alternatives == ("--default-chat-template-kwargs '{\"enable_thinking\": false}'",)


def test_what_needs_no_search(normalizer: Load) -> None:
    model = normalizer("small-qwen2-vl")
    case = one(300, 200)
    ours, ids = answered(model, case)

    def found(theirs: Outcome) -> Diagnosis:
        return diagnose(model.model, case, ours, theirs, arguments_found=[])

    refused = found(Outcome(refusal="ValueError: too wide"))
    assert refused.cause is Cause.ORACLE_REFUSES
    assert "too wide" in refused.explanation
    ranges = found(Outcome(ids, ((1, 2),)))
    assert ranges.cause is Cause.RANGES_ONLY
    assert "at 1 with length 2 in the oracle" in ranges.explanation
    assert ours.ranges is not None
    ((_, length),) = ours.ranges
    less = ((True, length - 1), (False, 1))
    features = found(Outcome(ids, ours.ranges, features=(less,)))
    assert features.cause is Cause.FEATURES_ONLY
    assert f"{length} positions with features in mmroute, and {length - 1}" in features.explanation
    other = found(Outcome(np.array([1, 2, 3], np.uint32), ()))
    assert other.cause is Cause.OTHER
    assert "the oracle 3" in other.explanation


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda runs: runs, Verdict.EQUAL),
        (lambda _: None, Verdict.EQUAL),  # a file that was written without them
        (lambda runs: [[1 - embed, length] for embed, length in runs], Verdict.SILENT),
        (lambda runs: [[1, sum(length for _, length in runs)]], Verdict.SILENT),
    ],
)
def test_positions_of_features_are_compared(
    normalizer: Load, tmp_path: Path, change: Callable[[Any], Any], verdict: Verdict
) -> None:
    model = normalizer("small-pixtral-hf").model
    right = RightEngine(model)
    findings = tuple(compare(model, right, [one(300, 200)]))
    path = tmp_path / "vectors.jsonl"
    report = Report("m", "f", "o", findings, model.tokenizer)
    write_vectors(path, report, right, {})
    meta, line = map(json.loads, path.read_text().splitlines())
    (placed,) = line["expect"]["placeholders"]
    placed["embed_runs"] = change(placed["embed_runs"])
    path.write_text(f"{json.dumps(meta)}\n{json.dumps(line)}\n")
    oracle = VectorsOracle(path)
    (finding,) = compare(model, oracle, oracle.cases())
    assert finding.verdict is verdict


def test_equal_answers_are_not_diagnosed(
    normalizer: Load, suite: Callable[[str], list[Case]]
) -> None:
    model = normalizer("small-gemma-3")
    findings = list(compare(model.model, RightEngine(model.model), suite("small-gemma-3")))
    assert {finding.verdict for finding in findings} == {Verdict.EQUAL, Verdict.REFUSED}


def test_a_report_shows_what_was_not_decided(normalizer: Load) -> None:
    model = normalizer("small-qwen2.5-vl").model
    case = one(28, 28)
    finding = Finding(case, our_outcome(model, case), None, Verdict.UNDECIDED, note="cannot say")
    report = Report(model.name, "qwen2.5-vl", "vllm", (finding,), model.tokenizer)
    assert "cannot say" in "\n".join(as_lines(report))
