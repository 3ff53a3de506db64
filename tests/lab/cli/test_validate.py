"""``mmroute validate`` and ``doctor`` as someone uses them who adds a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_engine import KnownEngine, RefusingEngine
from paths import VECTORS
from recorded_answers import without_arguments
from scripted_server import ScriptedServer
from small_models import Files

from mmroute import ModelError, Normalizer, Reason
from mmroute.cli import main
from mmroute.health import self_check
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.comparison import compare
from mmroute.lab.parity.report import Report, verdict_of
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.items import Modality


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(list(map(str, arguments)))
    return status, capsys.readouterr().out


def test_parity_with_vectors(
    small_model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "small-qwen2.5-vl"
    recorded = without_arguments(name, tmp_path)
    against = ("--against", recorded)
    lines = map(json.loads, recorded.read_text(encoding="utf-8").splitlines()[1:])
    answers = ["token_runs" in line["expect"] for line in lines]
    equal, refused = answers.count(True), answers.count(False)
    status, text = run(capsys, "validate", small_model(name), *against)
    assert status == 0
    assert text.splitlines()[-1].startswith(f"parity: {equal} of {equal} ")
    status, text = run(capsys, "validate", small_model(name), *against, "--json")
    report = json.loads(text)
    assert (report["parity"], report["verdicts"]["equal"], report["findings"]) == (True, equal, [])
    assert report["verdicts"]["refused"] == refused
    assert report["notes"][0].startswith("No identities of items were compared")
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


def test_a_wrong_limit_is_told(
    changed_model: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(files: Files) -> None:
        files["preprocessor_config.json"]["max_pixels"] = 200_704

    model, kept = changed_model("small-qwen2.5-vl", change), tmp_path / "kept.jsonl"
    status, text = run(
        capsys, "validate", model, "--against", VECTORS / "small-qwen2.5-vl.jsonl",
        "--write-vectors", kept,
    )  # fmt: skip
    assert status == 1
    assert "items have other counts" in text
    status, text = run(capsys, "validate", model, "--against", kept, "--json")
    report = json.loads(text)
    assert status == 1
    wrong = [f for f in report["findings"] if f["verdict"] == "silent"]
    assert len(wrong) == report["verdicts"]["silent"] > 0
    assert all("items have other counts" in finding["note"] for finding in wrong)


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
        (("--against", VECTORS / f"{EMBEDDED_MODEL}.jsonl", "--cases", "x.jsonl"), 2),
        (("--against", "transformers", "--cases", "nowhere.jsonl"), 3),
        (("--against", "transformers", "--write-vectors", "/nowhere/kept.jsonl"), 2),
    ],
)
def test_what_is_no_mismatch_does_not_look_like_one(
    options: tuple[object, ...], status: int
) -> None:
    assert main(["validate", EMBEDDED_MODEL, *map(str, options)]) == status


def test_doctor_tells_whether_a_model_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    vectors = VECTORS / f"{EMBEDDED_MODEL}.jsonl"
    status, text = run(capsys, "doctor", EMBEDDED_MODEL, "--vectors", vectors, "--json")
    report = json.loads(text)
    assert (status, report["healthy"], report["model"]) == (0, True, EMBEDDED_MODEL)
    assert "vectors" in {check["name"] for check in report["checks"]}
    status, text = run(capsys, "doctor", EMBEDDED_MODEL)
    assert (status, text.splitlines()[-1]) == (0, "healthy")


def test_refusals_alone_prove_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta, *_ = (VECTORS / f"{EMBEDDED_MODEL}.jsonl").read_text().splitlines()
    vectors = tmp_path / "vectors.jsonl"
    refused = {"id": "a", "prompt_token_ids": [], "expect": {"refused": "it is empty"}}
    vectors.write_text(f"{meta}\n{json.dumps(refused)}\n")
    assert run(capsys, "validate", EMBEDDED_MODEL, "--against", vectors)[0] == 3
    status, text = run(capsys, "doctor", EMBEDDED_MODEL, "--vectors", vectors)
    assert status == 1
    assert "holds no request that is answered" in text
    vectors.write_text(f"{meta}\n")
    assert run(capsys, "validate", EMBEDDED_MODEL, "--against", vectors)[0] == 3
    assert run(capsys, "doctor", EMBEDDED_MODEL, "--vectors", vectors)[0] == 1


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


def test_doctor_knows_an_engine_that_keeps_no_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    engine = "--engine-args", "m --block-size 16 --no-enable-prefix-caching"
    status, text = run(capsys, "doctor", EMBEDDED_MODEL, *engine, "--strict")
    assert "hashes: none: with --no-enable-prefix-caching the engine keeps no block" in text
    assert status == 1


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
            RefusingEngine(normalizer("small-qwen2.5-vl"))
            if thin in asked
            else KnownEngine(normalizer("small-qwen2.5-vl"))
        )
        findings = tuple(compare(model, engine, asked))
        return Report(model, "o", findings)

    assert (report(*cases).parity, report(*cases).uncompared) == (True, (Modality.VIDEO,))
    assert report(cases[0]).parity is True
    assert report(cases[0], thin).parity is None
    assert "no answer with images" in verdict_of(report(cases[0], thin))
