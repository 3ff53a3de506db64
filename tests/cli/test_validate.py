"""``mmroute validate``, ``doctor`` and ``spec check`` as someone uses them who adds a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, VECTORS
from scripted_server import ScriptedServer
from small_families import FAMILY_MODELS
from small_models import Files, write_model

from mmroute import ModelError, Normalizer, Reason
from mmroute.cli import main
from mmroute.families.matching import spec_files
from mmroute.families.spec import load_spec
from mmroute.health import self_check
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.parity.cases import Case, Outcome
from mmroute.parity.causes import Cause
from mmroute.parity.comparison import compare, our_outcome
from mmroute.parity.oracles.vectors import VectorsOracle
from mmroute.parity.report import Report, verdict_of
from mmroute.requests.items import Modality
from mmroute.specs.proposal import propose, size_cases

SPECS = ROOT / "model_specs"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(list(map(str, arguments)))
    return status, capsys.readouterr().out


def test_parity_with_vectors(
    small_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "small-qwen2.5-vl"
    against = ("--against", VECTORS / f"{name}.jsonl")
    status, text = run(capsys, "validate", small_model(name), *against)
    assert status == 0
    assert text.splitlines()[-1] == (
        "parity: 88 of 88 answers are equal; both refuse 20 requests; "
        "no answer with videos was compared"
    )
    status, text = run(capsys, "validate", small_model(name), *against, "--json")
    report = json.loads(text)
    assert (report["parity"], report["verdicts"]["equal"], report["findings"]) == (True, 88, [])
    assert report["verdicts"]["refused"] == 20
    assert report["uncompared"] == ["video"]


@pytest.mark.parametrize(
    ("recorded", "line"),
    [("0.33.0", "proved"), ("0.28.0", "'vllm==0.28.0'"), ("0.34.0", "unknown")],
)
def test_an_engine_of_another_version_is_told(
    small_model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recorded: str,
    line: str,
) -> None:
    name = "small-qwen2.5-vl"
    meta, case, *_ = (VECTORS / f"{name}.jsonl").read_text().splitlines()
    vectors = tmp_path / "vectors.jsonl"
    vectors.write_text(f"{meta.replace('0.33.0', recorded)}\n{case}\n")
    arguments = ["validate", str(small_model(name)), "--against", str(vectors)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert line in printed.out.splitlines()[1]
    assert ("mmroute: warning: " in printed.err) == (recorded != "0.33.0")
    assert main([*arguments, "--strict"]) == (recorded != "0.33.0")


@pytest.fixture
def wrong_limit(changed_model: Callable[..., Path]) -> Path:
    def change(files: Files) -> None:
        files["preprocessor_config.json"]["max_pixels"] = 200_704

    return changed_model("small-qwen2.5-vl", change)


class _Strips(HTMLParser):
    """The tokens of a report's page that are marked as the first difference."""

    def __init__(self) -> None:
        super().__init__()
        self.marked = self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag in ("script", "link", "img")
        self.marked += "first" in (dict(attributes).get("class") or "").split()


def test_a_wrong_limit_is_named(
    wrong_limit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, kept = tmp_path / "report.html", tmp_path / "kept.jsonl"
    status, text = run(
        capsys, "validate", wrong_limit, "--against", VECTORS / "small-qwen2.5-vl.jsonl",
        "--html", page, "--write-vectors", kept,
    )  # fmt: skip
    assert status == 1
    assert "wrong, processor_argument" in text
    assert '{"max_pixels": ' in text
    strips = _Strips()
    strips.feed(page.read_text(encoding="utf-8"))
    assert strips.marked > 2
    assert strips.scripts == 0, "the page must need nothing but itself"
    status, text = run(capsys, "validate", wrong_limit, "--against", kept, "--json")
    report = json.loads(text)
    assert status == 1
    assert report["verdicts"]["silent"] > 0
    assert {f["cause"] for f in report["findings"] if "cause" in f} == {"processor_argument"}


class _Engine:
    """An engine of which all is known: another normalizer."""

    name, version, running = "engine", "1", None

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer

    def answer(self, case: Case) -> Outcome:
        return our_outcome(self._normalizer.model, case)


def test_a_count_beyond_our_own_limits_is_explained(
    wrong_limit: Path, normalizer: Callable[[str], Normalizer]
) -> None:
    """The engine's limit is not ours, so ours must not keep the right one from being found."""
    engine = _Engine(normalizer("small-qwen2.5-vl"))
    image = {"width": 3585, "height": 3584}
    message = {"role": "user", "content": [{"type": "image"}]}
    case = Case("large", "limits", {"messages": [message], "images": [image]})
    (finding,) = compare(Normalizer.from_pretrained(wrong_limit).model, engine, [case])
    assert finding.diagnosis is not None
    assert finding.diagnosis.cause is Cause.PROCESSOR_ARGUMENT
    geometry: Any = engine._normalizer.model.media[Modality.IMAGE].geometry
    (setting,) = finding.diagnosis.alternatives
    assert f'"max_pixels": {geometry.grid.max_pixels}' in setting


def test_an_oracle_that_is_not_to_be_had(
    small_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model("small-qwen2.5-vl")
    assert main(["validate", str(model), "--against", "http://127.0.0.1:1"]) == 3
    engine = ["--engine", "http://127.0.0.1:1", "--against", "transformers"]
    assert main(["validate", str(model), *engine]) == 3  # 1 would be a mismatch
    assert main(["validate", str(model), "--against", "transformer"]) == 3
    assert "did you mean 'transformers'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--against", "vectors.jsonl"), 3),
        (("--against", VECTORS / f"{EMBEDDED_MODEL}.jsonl", "--random", 3), 2),
        (("--against", VECTORS / f"{EMBEDDED_MODEL}.jsonl", "--cases", "x.jsonl"), 2),
        (("--against", "transformers", "--random", -1), 2),
        (("--against", "transformers", "--cases", "nowhere.jsonl"), 3),
        (("--against", "transformers", "--html", "/nowhere/report.html"), 2),
    ],
)
def test_what_is_no_mismatch_does_not_look_like_one(
    options: tuple[object, ...], status: int
) -> None:
    assert main(["validate", EMBEDDED_MODEL, *map(str, options)]) == status


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    vectors = VECTORS / f"{EMBEDDED_MODEL}.jsonl"
    status, text = run(capsys, "doctor", EMBEDDED_MODEL, "--vectors", vectors, "--json")
    report = json.loads(text)
    assert (status, report["healthy"], report["model"]) == (0, True, EMBEDDED_MODEL)
    assert "vectors" in {check["name"] for check in report["checks"]}
    status, text = run(capsys, "doctor", EMBEDDED_MODEL)
    assert (status, text.splitlines()[-1]) == (0, "healthy")


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "named", "line", "warns"),
    [
        ("0.33.0", "vllm", "proved", False),
        ("0.12.0", "vllm==0.33.0", "unknown", True),
        ("0.34.0", "vllm==0.33.0", "unknown", True),
    ],
)
def test_doctor_says_how_an_engine_s_version_is_known(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    named: str,
    line: str,
    *,
    warns: bool,
) -> None:
    monkeypatch.setattr(self_check, "has_extension", lambda: True)
    own = "--engine-args", "org/m --block-size 32 --port 8001"
    with ScriptedServer() as server:
        server.routes["/version"] = 200, {"version": said}
        arguments = "doctor", EMBEDDED_MODEL, "--engine", server.url, "--backend", named, *own
        assert main([*arguments]) == 0
        text, messages = capsys.readouterr()
        assert messages.count("without effect on token IDs and hashes: --port") == 1
        (shown,) = (row for row in text.splitlines() if row.startswith("running_engine "))
        assert f"vllm {said}: {line}" in shown
        assert (f"warning: vllm {said}" in text) == warns
        assert run(capsys, *arguments, "--strict")[0] == warns


@pytest.mark.parametrize(
    ("told", "guessed"),
    [
        ("", ["model_id", "block_size"]),
        ("org/m", ["block_size"]),
        ("--block-size 32", ["model_id"]),
        ("org/m --block-size 32", []),
    ],
)
def test_doctor_calls_no_guess_ok(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    told: str,
    guessed: list[str],
) -> None:
    monkeypatch.setattr(self_check, "has_extension", lambda: True)
    arguments = "doctor", EMBEDDED_MODEL, "--engine-args", told
    status, text = run(capsys, *arguments)
    assert status == 0
    lines = [line for line in text.splitlines() if "model_id" in line or "block_size" in line]
    shown = {line.removeprefix("hashes: ").split()[0].strip(":"): line for line in lines}
    assert sorted(shown) == ["block_size", "model_id"]
    assert [name for name in shown if shown[name].startswith("hashes: ")] == guessed
    status, text = run(capsys, *arguments, "--strict")
    assert (status, text.splitlines()[-1]) == (
        (1, f"not healthy: hashes: {', '.join(guessed)}") if guessed else (0, "healthy")
    )
    status, text = run(capsys, *arguments, "--strict", "--json")
    assert (status, json.loads(text)["healthy"]) == (bool(guessed), not guessed)


@pytest.mark.parametrize(
    ("engine", "hashed"),
    [
        (("--engine-args", "m --block-size 16 --prefix-caching-hash-algo xxhash"), False),
        (("--engine-args", "m --block-size 16 --prefix-caching-hash-algo xxhash_cbor"), False),
        (("--engine-args", "PYTHONHASHSEED=0 m --block-size 16 --prefix-caching-hash-algo xxhash"),
         True),
        (("--engine-args", "m --block-size 16", "--backend", "vllm==0.28"), False),
        (("--engine-args", "PYTHONHASHSEED=0 m --block-size 16", "--backend", "vllm==0.28"), True),
        (("--engine-args", "m --block-size 16"), True),
    ],
)  # fmt: skip
def test_doctor_knows_an_engine_whose_hashes_have_a_random_seed(
    capsys: pytest.CaptureFixture[str], engine: tuple[str, ...], *, hashed: bool
) -> None:
    """Every process of such an engine draws its own seed, so no hash is ever found."""
    _, text = run(capsys, "doctor", EMBEDDED_MODEL, *engine, "--strict", "--json")
    report = json.loads(text)
    assert report["guesses"] == [guess for guess in report["guesses"] if "PYTHONHASHSEED" in guess]
    assert bool(report["guesses"]) == (not hashed)
    assert hashed or not report["healthy"]


def test_doctor_of_what_cannot_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = run(capsys, "doctor", tmp_path, "--json")
    assert (status, json.loads(text)["healthy"]) == (1, False)


def test_a_router_may_check_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "has_extension", lambda: True)
    assert Normalizer.from_pretrained(EMBEDDED_MODEL, self_check=True).model.name == EMBEDDED_MODEL

    def broken(*_arguments: Any) -> list[str]:
        return ["<image> is two tokens"]

    monkeypatch.setattr("mmroute.health.self_check._split_tokens", broken)
    with pytest.raises(ModelError, match="<image> is two tokens") as caught:
        Normalizer.from_pretrained(EMBEDDED_MODEL, self_check=True)
    assert caught.value.reason is Reason.SELF_CHECK_FAILED


def test_spec_check(
    small_model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SPECS / "qwen2_5_vl.toml"
    model = small_model("small-qwen2.5-vl")
    status, text = run(capsys, "spec", "check", spec, "--model", model)
    assert status == 0
    assert "max_pixels" in text
    wrong = tmp_path / "wrong.toml"
    source = spec.read_text(encoding="utf-8")
    wrong.write_text(source.replace('"smart_resize"', '"smart_resise"'), encoding="utf-8")
    status, text = run(capsys, "spec", "check", wrong)
    assert status == 1
    assert "smart_resize" in text
    status, text = run(capsys, "spec", "check", wrong, "--json")
    assert (status, json.loads(text)["valid"]) == (1, False)


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
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}
        if name in BY_MODEL_TYPE:
            files["tokenizer_config.json"]["tokenizer_class"] = "TokenizersBackend"

    path = changed_model(name, rename)
    with pytest.raises(ModelError) as caught:
        Normalizer.from_pretrained(path)
    assert caught.value.reason is Reason.UNKNOWN_FAMILY
    cases = [case for case in size_cases() if case.kind in ("text", "size")][::3]
    engine = _Engine(normalizer(name))
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
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}

    path = changed_model("small-qwen3-vl", rename)
    cases = [case for case in size_cases() if case.kind == "size"][::7]
    best = propose(find_model(str(path)), _Engine(normalizer("small-qwen3-vl")), cases).best
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

    def rename(files: Files) -> None:
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}

    names = {"cosmos3.toml", "qwen2_vl.toml"}
    few = [(package, file) for package, file in spec_files() if file.name in names]
    monkeypatch.setattr("mmroute.specs.proposal.spec_files", lambda: few)
    path = changed_model("small-qwen2-vl", rename)
    oracle = VectorsOracle(VECTORS / "small-qwen2-vl.jsonl")
    best, other = propose(find_model(str(path)), oracle, list(oracle.cases())).candidates
    assert best.family == "qwen2-vl"
    assert (best.equal, best.counted) == (other.equal, other.counted)
    assert best.decided < other.decided


class _Refusing(_Engine):
    """An engine that refuses every request with an item."""

    def answer(self, case: Case) -> Outcome:
        return Outcome(refusal="400") if case.modalities else super().answer(case)


@pytest.fixture
def few_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """The families of the models here, and the one of texts; all others are tried like these."""
    names = {"granite_speech.toml", "llava_next.toml", "qwen3_vl.toml", "text.toml"}
    few = [(package, file) for package, file in spec_files() if file.name in names]
    assert len(few) == len(names)
    monkeypatch.setattr("mmroute.specs.proposal.spec_files", lambda: few)


@pytest.mark.usefixtures("few_families")
def test_refusals_of_both_sides_are_no_agreement(
    changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    def rename(files: Files) -> None:
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}

    path = changed_model("small-qwen3-vl", rename)
    cases = [case for case in size_cases() if case.kind in ("text", "audio")]
    assert len(cases) > 10
    proposal = propose(find_model(str(path)), _Refusing(normalizer("small-qwen3-vl")), cases)
    assert max(candidate.decided for candidate in proposal.candidates) < len(cases)
    assert (proposal.best.equal, proposal.best.decided) == (1, 1)
    assert not proposal.best.good
    assert "answered no request with" in proposal.missing


def test_no_parity_is_claimed_where_no_item_was_answered(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer("small-qwen2.5-vl").model
    image, text = {"type": "image"}, {"type": "text", "text": "Hi"}
    requests: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": [text]}]},
        {"messages": [{"role": "user", "content": [image]}], "images": [{"width": 9, "height": 1}]},
    ]
    cases = [Case(str(number), "own", request) for number, request in enumerate(requests)]
    thin = Case("thin", "own", requests[1] | {"images": [{"width": 2010, "height": 10}]})

    def report(*asked: Case) -> Report:
        engine = (
            _Refusing(normalizer("small-qwen2.5-vl"))
            if thin in asked
            else _Engine(normalizer("small-qwen2.5-vl"))
        )
        findings = tuple(compare(model, engine, asked))
        modalities = tuple(model.media)
        return Report("m", "f", "o", findings, model.tokenizer, modalities=modalities)

    assert (report(*cases).parity, report(*cases).uncompared) == (True, (Modality.VIDEO,))
    assert report(cases[0]).parity is True
    assert report(cases[0], thin).parity is None
    assert verdict_of(report(cases[0], thin)) == (
        "not decided: 1 of 1 answers are equal; both refuse 1 requests; "
        "no answer with images and none with videos was compared"
    )


@pytest.mark.usefixtures("few_families")
@pytest.mark.parametrize("vision", [True, False])
def test_text_only_is_proposed_only_for_a_model_without_a_vision_part(
    vision: bool, changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    """The engine answers text alone, so a family without images could agree on everything."""

    def rename(files: Files) -> None:
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["Newcomer"]}
        if not vision:
            del files["preprocessor_config.json"]
            config = files["config.json"]
            for name in [name for name in config if "vision" in name or "image" in name]:
                del config[name]

    path = changed_model("small-llava-next", rename)
    engine = _Engine(normalizer("small-llava-next"))
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = FAMILY_MODELS["small-granite-speech"]()
    files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}
    path = write_model(files, tmp_path / "model")
    vectors = VECTORS / "families" / "small-granite-speech.jsonl"
    status, text = run(capsys, "spec", "new", path, "--against", vectors)
    assert status == 0
    decisions = text.partition("What you must decide")[2]
    assert "[audio]" in decisions
    assert "[image]" not in decisions


@pytest.mark.usefixtures("few_families")
def test_no_good_proposal(
    changed_model: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answers are of a grid that the known family does not have."""

    def rename(files: Files) -> None:
        files["config.json"] |= {"model_type": "newcomer", "architectures": ["NewcomerForAll"]}

    path = changed_model("small-qwen3-vl", rename)
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
    command = ["spec", "new", str(path), "--against", str(vectors), "--out", str(out)]
    assert main(command) == 1
    assert not out.exists()
    printed = capsys.readouterr().out
    assert "no good proposal" in printed
    assert "1x1: 777" in printed
    table, _, _ = printed.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 72


def test_spec_new_without_an_oracle(
    small_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model("small-qwen3-vl")
    assert main(["spec", "new", str(model), "--against", "http://127.0.0.1:1"]) == 1
    assert "oracle_unavailable" in capsys.readouterr().err
