"""The self-check: what is healthy, what is not, and what is only worth a warning."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_models import ALL_MODELS, SMALL_MODELS, Files, write_model

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.geometry import CachePlan, Count, ModelContext
from mmroute.hashing import chain
from mmroute.health import self_check
from mmroute.health.self_check import HealthReport, check_model, load_and_check
from mmroute.health.tested_versions import TESTED, version_of
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.placement import Expansion, Insertion, Placement
from mmroute.requests.items import ImageSize, Modality
from mmroute.token_ids import TokenIds

QWEN = "small-qwen2.5-vl"


def detail(report: HealthReport, name: str) -> str:
    """What a check found, which must be the only one that failed."""
    assert [check.name for check in report.checks if not check.ok] == [name], report.failures
    return next(check.detail for check in report.checks if check.name == name)


@pytest.mark.parametrize("name", [*SMALL_MODELS, EMBEDDED_MODEL])
def test_models_are_healthy(name: str, normalizer: Callable[[str], Normalizer]) -> None:
    report = check_model(normalizer(name).model)
    assert report.healthy, report.failures
    assert report.failures == ""
    assert not [warning for warning in report.warnings if "is inexact" in warning]
    assert [check.name for check in report.checks] == [
        "files", "engine", "versions", "encoder", "block_hashes", "model_id", "special_tokens",
        "text", "requests",
    ]  # fmt: skip


def test_a_model_is_healthy_under_settings_that_refuse_some_requests(
    small_model: Callable[[str], Path],
) -> None:
    settings = VllmSettings.from_args("vllm serve m --hf-overrides '{\"image_token_id\": 5}'")
    normalizer = Normalizer.from_pretrained(
        small_model("small-qwen2.5-vl"), engine_settings=settings, model_id="m"
    )
    assert not normalizer.normalize(prompt="<|image_pad|>", images=[ImageSize(56, 56)]).exact
    assert check_model(normalizer.model).healthy


def test_a_package_without_its_compiled_part_is_named(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python in a checkout imports the sources, and not the installed package."""
    monkeypatch.setattr(chain, "_chain", None)
    for module in (chain, self_check):
        monkeypatch.setattr(module, "compiled", lambda _: False)
    report = check_model(normalizer(QWEN).model)
    package = Path(self_check.__file__).parents[1]
    assert any(f"{package} has no compiled parts" in warning for warning in report.warnings)


def test_the_report_as_json(
    small_model: Callable[[str], Path], normalizer: Callable[[str], Normalizer]
) -> None:
    report = json.loads(json.dumps(check_model(normalizer(QWEN).model).as_json()))
    assert report.keys() == {
        "healthy", "model", "family", "backend", "mmroute", "checks", "warnings", "guesses",
        "fingerprints",
    }  # fmt: skip
    assert (report["healthy"], report["family"]) == (True, "qwen2.5-vl")
    assert (report["backend"], report["mmroute"]) == ("vllm 0.33.0", TESTED["mmroute"][0])
    assert report["checks"][0].keys() == {"name", "ok", "detail"}
    tokenizer = small_model(QWEN) / "tokenizer.json"
    assert (
        report["fingerprints"]["tokenizer.json"]
        == hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    )
    assert report["fingerprints"].keys() == {path.name for path in small_model(QWEN).iterdir()}


def test_the_embedded_model_has_a_fingerprint(normalizer: Callable[[str], Normalizer]) -> None:
    assert check_model(normalizer(EMBEDDED_MODEL).model).fingerprints.keys() == {"tekken.json"}


def test_a_tokenizer_of_the_other_format_is_not_read(changed_model: Callable[..., Path]) -> None:
    path = changed_model("small-mistral3", lambda files: files.update({"tekken.json": {}}))
    assert "tekken.json" not in load_and_check(path).fingerprints


def test_a_split_image_token_is_reported(changed_model: Callable[..., Path]) -> None:
    def change(files: Files) -> None:
        files["tokenizer_config.json"]["added_tokens_decoder"] = {}

    report = load_and_check(changed_model("small-qwen2-vl", change))
    assert "special_token_split: " in detail(report, "load")
    assert "<|image_pad|>" in report.failures
    assert (report.as_json()["healthy"], report.family, report.fingerprints) == (False, None, {})


def test_a_model_that_is_nowhere_is_reported() -> None:
    assert "model_not_found" in detail(load_and_check("/nowhere/model"), "load")
    assert "unknown_backend" in detail(load_and_check(EMBEDDED_MODEL, backend="vlm"), "load")


def test_a_special_token_that_only_the_configuration_names_is_one_id(
    changed_model: Callable[..., Path],
) -> None:
    """The engine makes an entry of the vocabulary special that the configuration names."""

    def change(files: Files) -> None:
        tokenizer, config = files["tokenizer.json"], files["tokenizer_config.json"]
        token = next(t for t in tokenizer["added_tokens"] if t["content"] == "<|endoftext|>")
        tokenizer["added_tokens"].remove(token)
        del config["added_tokens_decoder"][str(token["id"])]
        tokenizer["model"]["vocab"]["<|endoftext|>"] = token["id"]
        config["additional_special_tokens"] = ["<|endoftext|>"]

    report = load_and_check(changed_model(QWEN, change))
    assert report.healthy, report.failures


def test_a_hole_in_the_vocabulary_is_found(changed_model: Callable[..., Path]) -> None:
    def change(files: Files) -> None:
        vocabulary = files["tokenizer.json"]["model"]["vocab"]
        vocabulary["\u0394"] = vocabulary.pop("z")

    assert "boxing wiards" in detail(load_and_check(changed_model(QWEN, change)), "text")


def test_other_ids_are_found_by_vectors_and_show_in_fingerprints(
    changed_model: Callable[..., Path], normalizer: Callable[[str], Normalizer]
) -> None:
    def change(files: Files) -> None:
        vocabulary = files["tokenizer.json"]["model"]["vocab"]
        vocabulary["e"], vocabulary["t"] = vocabulary["t"], vocabulary["e"]

    path = changed_model(QWEN, change)
    report = load_and_check(path)
    assert report.healthy
    original = check_model(normalizer(QWEN).model).fingerprints
    assert dict(original.items() - report.fingerprints.items()).keys() == {"tokenizer.json"}


def test_what_was_tested_is_this_version() -> None:
    assert importlib.metadata.version("mmroute") in TESTED["mmroute"]


@pytest.fixture
def versions_are_looked_up() -> Iterator[None]:
    """Again in this test, and again after it."""
    version_of.cache_clear()
    yield
    version_of.cache_clear()


@pytest.mark.usefixtures("versions_are_looked_up")
@pytest.mark.parametrize(
    ("model", "named"),
    [
        (QWEN, ["mmroute", "tokenizers", "jinja2", "pillow", "fastokens"]),
        (EMBEDDED_MODEL, ["mmroute", "mistral-common", "pillow"]),
    ],
)
def test_other_versions_are_warned_of(
    model: str,
    named: list[str],
    normalizer: Callable[[str], Normalizer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = normalizer(model)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "99.1")
    monkeypatch.setattr(self_check, "has_extension", lambda: True)
    report = check_model(loaded.model)
    assert report.healthy
    assert list(report.warnings) == [
        f"{name} 99.1 is installed; tested was {TESTED[name][0]}" for name in named
    ]
    assert report.as_json()["mmroute"] == "99.1"


@pytest.mark.usefixtures("versions_are_looked_up")
def test_versions_nobody_recorded(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    loaded = normalizer(QWEN)
    monkeypatch.setattr("importlib.metadata.version", missing)
    report = check_model(loaded.model)
    assert report.as_json()["mmroute"] == "unknown"
    assert any(warning.startswith("jinja2 unknown") for warning in report.warnings)


def test_what_the_family_was_checked_on_wins(normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(QWEN).model
    family = model.family.model_copy(update={"checked": {"tokenizers": ("0.1.0",)}})
    report = check_model(dataclasses.replace(model, family=family))
    assert any(warning.endswith("tested was 0.1.0") for warning in report.warnings)
    assert any(warning.endswith("checked on no version of it") for warning in report.warnings)
    release = dataclasses.replace(model.engine.release, version="0.99.0")
    engine = dataclasses.replace(model.engine, release=release)
    report = check_model(dataclasses.replace(model, engine=engine))
    assert any("vllm 0.99.0" in warning for warning in report.warnings)
    assert report.healthy


def test_a_model_without_chat_template_is_healthy(changed_model: Callable[..., Path]) -> None:
    report = load_and_check(changed_model(QWEN, lambda files: files.pop("chat_template.json")))
    assert report.healthy, report.failures
    inexact = [warning for warning in report.warnings if "chat_template_missing" in warning]
    assert len(inexact) == 3


@pytest.mark.parametrize(("most", "name"), [(0, "text chat"), (1, "chat with 1 image")])
def test_an_engine_that_takes_fewer_images_is_healthy(
    most: int, name: str, small_model: Callable[[str], Path]
) -> None:
    settings = VllmSettings.from_args(f"vllm serve x --limit-mm-per-prompt.image {most}")
    report = load_and_check(small_model(QWEN), engine_settings=settings)
    assert report.healthy, report.failures
    (requests,) = [check.detail for check in report.checks if check.name == "requests"]
    assert name in requests
    assert f"{most + 1} image" not in requests


def test_a_template_that_drops_images_is_not(changed_model: Callable[..., Path]) -> None:
    def change(files: Files) -> None:
        text = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
        files["chat_template.json"] = {"chat_template": text}

    found = detail(load_and_check(changed_model(QWEN, change)), "requests")
    assert found.startswith("chat with 1 image is inexact: placeholder_count_mismatch")


def test_a_directory_that_has_gone(changed_model: Callable[..., Path]) -> None:
    path = changed_model(QWEN, lambda _: None)
    loaded = Normalizer.from_pretrained(path)
    shutil.rmtree(path)
    assert "no longer" in detail(check_model(loaded.model), "files")


@pytest.mark.usefixtures("hub_commit")
def test_files_of_the_hub_are_found_without_it() -> None:
    report = load_and_check("someone/small")
    assert report.healthy, report.failures
    assert "tokenizer.json" in report.fingerprints


def broken(normalizer: Normalizer, **parts: Any) -> HealthReport:
    """The report on a model with another geometry or placement."""
    return check_model(dataclasses.replace(normalizer.model, **parts))


@dataclasses.dataclass(frozen=True)
class Changed:
    """A placement whose ranges are not those of its IDs."""

    placement: Placement
    change: Callable[[Any], Any]

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        found = self.placement.expand(ids, insertions)
        return Expansion(found.token_ids, tuple(map(self.change, found.placeholders)))


@pytest.mark.parametrize(
    ("field", "by", "words"),
    [
        ("offset", 1, "not the same positions"),
        ("offset", 10**6, "end of the prompt"),
        ("length", -1, "the geometry counts"),
        ("item", 1, "2 ranges for 2 images"),
    ],
)
def test_wrong_ranges_are_found(
    field: str, by: int, words: str, normalizer: Callable[[str], Normalizer]
) -> None:
    def change(placed: Any) -> Any:
        return placed._replace(**{field: getattr(placed, field) + by})

    loaded = normalizer(QWEN)
    report = broken(loaded, placement=Changed(loaded.model.placement, change))
    assert words in detail(report, "requests")


def test_an_answer_that_changes_is_found(normalizer: Callable[[str], Normalizer]) -> None:
    """A geometry that counts one more each time."""
    loaded = normalizer(QWEN)
    rules = loaded.model.media[Modality.IMAGE]
    geometry = rules.geometry
    turn = itertools.count()

    class Growing:
        def largest_item(self, plan: CachePlan) -> Iterable[ImageSize] | int:
            return geometry.grid.largest_item(plan)

        def counts(self, items: Sequence[ImageSize], context: ModelContext) -> Iterable[Count]:
            more = next(turn)
            larger = [ImageSize(s.width + 28 * more, s.height) for s in items]
            return geometry.grid.counts(larger, context)

    changed = dataclasses.replace(rules, geometry=dataclasses.replace(geometry, grid=Growing()))
    report = broken(loaded, media={Modality.IMAGE: changed})
    assert "chat with 1 image has two different answers" in detail(report, "requests")


def test_a_model_whose_chats_are_rendered_by_code_is_healthy(tmp_path: Path) -> None:
    """Its completions are answered; that its chats are not is a limit, and no failure."""
    report = load_and_check(write_model(ALL_MODELS["small-gpt-oss"](), tmp_path / "model"))
    assert report.healthy, report.failures
    assert any("chat_renderer_unsupported" in warning for warning in report.warnings)
