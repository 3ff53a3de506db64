"""The engine's names for items are compared, and the setting that makes them equal is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mmroute.engines.running import running_engine
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.causes import Cause
from mmroute.lab.parity.comparison import Verdict, compare, our_outcome
from mmroute.lab.parity.identity_remedies import identities_of
from mmroute.lab.parity.media_cases import media_cases
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel

CASE = Case(
    "c",
    "test",
    {
        "messages": [{"role": "user", "content": [{"type": "image"}]}],
        "images": [{"width": 64, "height": 48}],
    },
)


class Engine:
    """An oracle that answers as mmroute would under other settings."""

    name, version = "engine", "0"

    def __init__(self, model: ResolvedModel, told: str = "") -> None:
        self.model = model
        self.running = replace(running_engine("vllm", "0.33.0"), model_string=told)

    def answer(self, case: Case) -> Outcome:
        return replace(our_outcome(self.model, case), identities=identities_of(self.model, case))


@pytest.mark.parametrize("algorithm", ["blake3", "sha512"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_wrong_model_string_or_algorithm_is_named(
    slash: str, algorithm: str, small_model: Callable[[str], Path]
) -> None:
    path = str(small_model("small-qwen2.5-vl"))
    model = resolve_model(path)
    identify = partial(model.engine.naming.identify, algorithm=algorithm)
    naming = replace(model.engine.naming, identify=identify)
    engine = replace(model.engine, naming=naming)
    other = replace(model, model_id=path + slash, engine=engine)
    (finding,) = compare(model, Engine(other), [CASE])
    if (slash, algorithm) == ("", "blake3"):
        assert finding.verdict is Verdict.EQUAL
        return
    assert finding.verdict is Verdict.SILENT
    assert finding.diagnosis is not None
    assert finding.diagnosis.cause is (Cause.MODEL_STRING if slash else Cause.IDENTITIES_ONLY)
    named = finding.diagnosis.alternatives[0]
    assert (f"--model {path}/" in named) == bool(slash)
    assert ("--mm-hasher-algorithm sha512" in named) == (algorithm == "sha512")


@pytest.mark.parametrize("told", ["Some/Name", ""])
def test_the_string_that_the_server_tells_is_tried(
    told: str, small_model: Callable[[str], Path]
) -> None:
    model = resolve_model(str(small_model("small-qwen2.5-vl")))
    (finding,) = compare(model, Engine(replace(model, model_id="Some/Name"), told), [CASE])
    assert finding.diagnosis is not None
    if told:
        assert finding.diagnosis.cause is Cause.MODEL_STRING
        assert finding.diagnosis.alternatives == ("--model Some/Name",)
    else:
        assert finding.diagnosis.cause is Cause.IDENTITIES_ONLY
        assert "The server gives no string" in finding.diagnosis.explanation


def test_videos_have_identities(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model("small-qwen2.5-vl")))
    other = replace(model, model_id="other")
    video = list(media_cases(model))[1].request["messages"][0]["content"][0]
    # This model's template ignores videos: the text has the placeholder.
    typed = {"type": "text", "text": "<|vision_start|><|video_pad|><|vision_end|>"}
    case = Case("v", "video", {"messages": [{"role": "user", "content": [video, typed]}]})
    assert len(identities_of(model, case) or ()) == 1
    (equal,), (renamed,) = (compare(model, Engine(m), [case]) for m in (model, other))
    assert (equal.verdict, renamed.verdict) == (Verdict.EQUAL, Verdict.SILENT)
