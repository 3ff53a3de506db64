"""``mmroute spec check`` and ``spec new`` as someone uses them who adds a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from known_engine import KnownEngine, RefusingEngine
from paths import ROOT, VECTORS
from small_models import FAMILY_MODELS, Files, write_model

from mmroute import ModelError, Normalizer, Reason
from mmroute.families.matching import spec_files
from mmroute.families.spec import load_spec
from mmroute.lab.parity.oracles.vectors import VectorsOracle
from mmroute.lab.specs.proposal import propose, size_cases
from mmroute.model_directory import find_model
from mmroute.requests.items import Modality


def newcomer(files: Files) -> None:
    """Make it a model that nobody knows."""
    files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}


def test_spec_check_tells_a_right_spec_from_a_wrong_one(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    spec = ROOT / "model_specs" / "qwen2_5_vl.toml"
    right = run("spec", "check", str(spec), "--model", str(small_model("small-qwen2.5-vl")))
    assert right.status == 0
    assert "max_pixels" in right.stdout
    wrong = tmp_path / "wrong.toml"
    source = spec.read_text(encoding="utf-8")
    wrong.write_text(
        source.replace('target = "image"', 'target = "image"\nlayout = "fil"'), encoding="utf-8"
    )
    checked = run("spec", "check", str(wrong))
    assert checked.status == 1
    assert "did you mean 'fill'?" in checked.stdout
    checked = run("spec", "check", str(wrong), "--json")
    assert (checked.status, json.loads(checked.stdout)["valid"]) == (1, False)


NEW_MODELS = {
    "small-qwen3-vl": "smart_resize",
    "small-llava-next": "anyres",
}

# Of these the engine keeps tokenizer.json because of the model type, which a newcomer has not.
BY_MODEL_TYPE = ("small-llava-next",)


@pytest.mark.parametrize("name", NEW_MODELS)
def test_a_spec_is_proposed_for_a_model_nobody_knows(
    name: str,
    changed_model: Callable[..., Path],
    normalizer: Callable[[str], Normalizer],
) -> None:
    """The engine's part is played by the normalizer of the model as it is known."""

    def rename(files: Files) -> None:
        newcomer(files)
        if name in BY_MODEL_TYPE:
            files["tokenizer_config.json"]["tokenizer_class"] = "TokenizersBackend"

    path = changed_model(name, rename)
    with pytest.raises(ModelError) as caught:
        Normalizer.from_pretrained(path)
    assert caught.value.reason is Reason.UNKNOWN_FAMILY
    cases = [case for case in size_cases() if case.kind in ("text", "size")][::12]
    engine = KnownEngine(normalizer(name))
    answered = sum(engine.answer(case).token_ids is not None for case in cases)
    proposal = propose(find_model(str(path)), engine, cases)
    best = proposal.best
    assert (best.grid, best.problem) == (NEW_MODELS[name], "")
    assert best.equal == best.counted == best.decided == answered > len(cases) - 2
    assert all(other.equal <= best.equal for other in proposal.candidates)
    assert best.good
    assert not proposal.missing
    spec = load_spec(best.text, "proposed")
    assert spec.family == "newcomer"
    assert spec.checked == {}
    assert spec.matches(find_model(str(path)))


@pytest.mark.usefixtures("few_families")
def test_a_proposal_has_the_tokens_of_the_new_model_and_no_part_that_was_not_asked(
    changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    def rename(files: Files) -> None:
        for name, content in files.items():
            files[name] = json.loads(json.dumps(content).replace("|image_pad|", "|picture|"))
        newcomer(files)

    path = changed_model("small-qwen3-vl", rename)
    cases = [case for case in size_cases() if case.kind == "size"][::7]
    best = propose(find_model(str(path)), KnownEngine(normalizer("small-qwen3-vl")), cases).best
    assert best.good, best
    spec = load_spec(best.text, "proposed")
    assert spec.media.keys() == {Modality.IMAGE}
    assert spec.tokens["image"].text is not None
    assert spec.tokens["image"].text.default == "<|picture|>"
    assert set(spec.tokens) == {"image"}
    assert "sglang" not in best.text


def test_of_proposals_with_as_many_equal_answers_the_one_with_fewer_others_is_best(
    changed_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosmos3 takes requests that the engine refuses for this model, and is the first by name."""
    names = {"cosmos3.toml", "qwen2_vl.toml"}
    few = [(package, file) for package, file in spec_files() if file.name in names]
    monkeypatch.setattr("mmroute.lab.specs.proposal.spec_files", lambda: few)
    path = changed_model("small-qwen2-vl", newcomer)
    oracle = VectorsOracle(VECTORS / "small-qwen2-vl.jsonl")
    best, other = propose(find_model(str(path)), oracle, list(oracle.cases())).candidates
    assert best.family == "qwen2-vl"
    assert (best.equal, best.counted) == (other.equal, other.counted)
    assert best.decided < other.decided


@pytest.fixture
def few_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """The families of the models here, and the one of texts; all others are tried like these."""
    names = {"granite_speech.toml", "llava_next.toml", "qwen3_vl.toml", "text.toml"}
    few = [(package, file) for package, file in spec_files() if file.name in names]
    assert len(few) == len(names)
    monkeypatch.setattr("mmroute.lab.specs.proposal.spec_files", lambda: few)


@pytest.mark.usefixtures("few_families")
def test_refusals_of_both_sides_are_no_agreement(
    changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    path = changed_model("small-qwen3-vl", newcomer)
    cases = [case for case in size_cases() if case.kind in ("text", "audio")]
    assert len(cases) > 10
    proposal = propose(find_model(str(path)), RefusingEngine(normalizer("small-qwen3-vl")), cases)
    assert max(candidate.decided for candidate in proposal.candidates) < len(cases)
    assert (proposal.best.equal, proposal.best.decided) == (1, 1)
    assert not proposal.best.good
    assert "answered no request with" in proposal.missing


@pytest.mark.usefixtures("few_families")
@pytest.mark.parametrize("vision", [True, False])
def test_text_only_is_proposed_only_for_a_model_without_a_vision_part(
    vision: bool, changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    """The engine answers text alone, so a family without images could agree on everything."""

    def rename(files: Files) -> None:
        newcomer(files)
        if not vision:
            del files["preprocessor_config.json"]
            config = files["config.json"]
            for name in [name for name in config if "vision" in name or "image" in name]:
                del config[name]

    path = changed_model("small-llava-next", rename)
    engine = KnownEngine(normalizer("small-llava-next"))
    text_only = [
        candidate
        for candidate in propose(find_model(str(path)), engine, size_cases()[:1]).candidates
        if candidate.grid is None
    ]
    assert text_only
    for candidate in text_only:
        assert ("takes text only" in candidate.problem) == vision


@pytest.mark.usefixtures("few_families")
def test_what_is_left_to_decide_is_of_the_tables_that_were_asked(
    tmp_path: Path,
) -> None:
    files = FAMILY_MODELS["small-granite-speech"]()
    newcomer(files)
    path = write_model(files, tmp_path / "model")
    vectors = VECTORS / "families" / "small-granite-speech.jsonl"
    proposed = run("spec", "new", str(path), "--against", str(vectors))
    assert proposed.status == 0
    decisions = proposed.stdout.partition("What you must decide")[2]
    assert "[audio]" in decisions
    assert "[image]" not in decisions


@pytest.mark.usefixtures("few_families")
def test_no_good_proposal(
    changed_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are of a grid that the known family does not have."""
    path = changed_model("small-qwen3-vl", newcomer)
    lines: list[Any] = [
        {"kind": "meta", "model": "newcomer", "backend": "vllm", "backend_version": "0.33.0"}
    ]
    for case in size_cases()[1:4]:
        answer = {
            "token_runs": [[1, 5], [2, 777], [1, 5]],
            "placeholders": [{"offset": 5, "length": 777}],
        }
        lines.append({"id": case.id, **case.request, "expect": answer})
    vectors, out = tmp_path / "vectors.jsonl", tmp_path / "newcomer.toml"
    vectors.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setenv("COLUMNS", "72")
    proposed = run("spec", "new", str(path), "--against", str(vectors), "--out", str(out))
    assert proposed.status == 1
    assert not out.exists()
    assert "no good proposal" in proposed.stdout
    assert "1x1: 777" in proposed.stdout
    assert "\n  1x1: #*777\n" in proposed.stdout  # the vocabulary's text of 2
    table, _, _ = proposed.stdout.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 72


def test_spec_new_without_an_oracle(small_model: Callable[[str], Path]) -> None:
    model = str(small_model("small-qwen3-vl"))
    proposed = run("spec", "new", model, "--against", "http://127.0.0.1:1")
    assert proposed.status == 1
    assert "oracle_unavailable" in proposed.stderr


def test_a_proposal_overwrites_no_file(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    model, edited = str(small_model("small-qwen3-vl")), tmp_path / "mine.toml"
    edited.write_text("mine")
    against = str(tmp_path / "answers.jsonl")
    Path(against).write_text("")
    proposed = run("spec", "new", model, "--against", against, "--out", str(edited))
    assert proposed.status == 2
    assert "exists" in proposed.stderr
    assert edited.read_text() == "mine"
