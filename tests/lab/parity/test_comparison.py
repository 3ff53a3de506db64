"""What a comparison with an oracle says of two answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_helpers import RightEngine

from mmroute import Normalizer
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.comparison import Finding, Verdict, compare, our_outcome
from mmroute.lab.parity.oracles.vectors import VectorsOracle, write_vectors
from mmroute.lab.parity.report import Report, as_lines

Load = Callable[[str], Normalizer]


def one(width: int, height: int) -> Case:
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    images = [{"width": width, "height": height}]
    return Case("c", "test", {"messages": messages, "images": images})


class Saying(RightEngine):
    """An oracle with one answer."""

    def __init__(self, answer: Outcome) -> None:
        self.said = answer

    def answer(self, _case: Case) -> Outcome:
        return self.said


def test_what_differs_is_told(normalizer: Load) -> None:
    model = normalizer("small-qwen2-vl").model
    ours = our_outcome(model, one(300, 200))
    ids, ranges = ours.token_ids, ours.ranges
    assert ids is not None
    assert ranges is not None
    ((offset, length),) = ranges
    less = ((True, length - 1), (False, 1))
    more = np.insert(ids, offset, [ids[offset]] * 6).astype(np.uint32)
    behind = np.append(ids, ids[:3]).astype(np.uint32)  # a template may put words behind an image
    for theirs, words, absent in (
        (Outcome(refusal="ValueError: too wide"), "too wide", "token IDs"),
        (Outcome(ids, ((1, 2),)), "at 1 with length 2 in the oracle", "identities"),
        (Outcome(ids, ranges, features=(less,)), f"mmroute, and {length - 1}", "identities"),
        (Outcome(more), "items have other counts", "identities"),
        (Outcome(behind), f"the oracle {len(behind)}", "other counts"),
    ):
        (finding,) = compare(model, Saying(theirs), [one(300, 200)])
        assert finding.verdict is Verdict.SILENT
        assert words in finding.note
        assert absent not in finding.note


def test_a_report_shows_both_texts_and_what_was_not_decided(normalizer: Load) -> None:
    model = normalizer("small-qwen2.5-vl").model
    texts = [Case("c", "test", {"prompt": f"The cat sat on the {it}."}) for it in ("mat", "dog")]
    ours, theirs = (our_outcome(model, case) for case in texts)
    undecided = Finding(one(28, 28), ours, None, Verdict.UNDECIDED, "cannot say")
    findings = (*compare(model, Saying(theirs), texts[:1]), undecided)
    shown = "\n".join(as_lines(Report(model, "o", findings)))
    for words in ("cannot say", "the mat", "the dog"):
        assert words in shown


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
    report = Report(model, "o", findings)
    write_vectors(path, report, right, {})
    meta, line = map(json.loads, path.read_text().splitlines())
    (placed,) = line["expect"]["placeholders"]
    placed["embed_runs"] = change(placed["embed_runs"])
    path.write_text(f"{json.dumps(meta)}\n{json.dumps(line)}\n")
    oracle = VectorsOracle(path)
    (finding,) = compare(model, oracle, oracle.cases())
    assert finding.verdict is verdict


def test_equal_answers_are_equal(normalizer: Load, suite: Callable[[str], list[Case]]) -> None:
    model = normalizer("small-gemma-3").model
    findings = list(compare(model, RightEngine(model), suite("small-gemma-3")))
    assert {finding.verdict for finding in findings} == {Verdict.EQUAL, Verdict.REFUSED}
