"""Specs from elsewhere: every mistake is named, with its place and what was probably meant."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT
from small_models import Files

from mmroute import SpecError
from mmroute.families.spec import load_spec
from mmroute.lab.specs.check import SpecReport, check_spec
from mmroute.lab.specs.toml_text import toml_text

SPECS = sorted((ROOT / "model_specs").glob("*.toml"))
OWN = """\
family = "acme-vl"
title = "Acme VL"
text_config = ["text_config", ""]
context_length = { default = 32768, note = "Acme" }
checked = { vllm = ["0.33.0"] }

[match]
"config.json:model_type" = ["acme_vl"]
"config.json:architectures" = ["AcmeVLForConditionalGeneration"]

[tokens.image]
text = { from = ["tokenizer_config.json:image_token"], default = "<|image_pad|>", note = "Acme" }
equals = ["config.json:image_token_id"]

[image]
target = "image"
chat_text = "<|vision_start|><|image_pad|><|vision_end|>"
layout = "fill"

[image.grid]
name = "smart_resize"
patch_size = { from = ["preprocessor_config.json:patch_size"], default = 14, note = "Acme" }
merge_size = { from = ["preprocessor_config.json:merge_size"], default = 2, note = "Acme" }
min_pixels = { from = ["preprocessor_config.json:min_pixels"], default = 3136, note = "Acme" }
max_pixels = { from = ["preprocessor_config.json:max_pixels"], default = 1003520, note = "Acme" }
resize = { from = ["preprocessor_config.json:do_resize"], default = true, note = "Acme" }

[image.accepts]
min_pixels = "min_pixels"
max_pixels = "max_pixels"
patch_size = "patch_size"
do_resize = { sets = "resize", kind = "nullable_switch" }
"""


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., SpecReport]:
    def write_and_check(text: str, model: str | None = None) -> SpecReport:
        path = tmp_path / "acme_vl.toml"
        path.write_text(text, encoding="utf-8")
        return check_spec(path, model=model)

    return write_and_check


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_specs_are_valid_and_can_be_written(path: Path) -> None:
    report = check_spec(path)
    assert report.valid, report.problems
    assert report.spec is not None
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert tomllib.loads(toml_text(data)) == data


def test_a_valid_spec_says_what_it_is_for(check: Callable[..., SpecReport]) -> None:
    report = json.loads(json.dumps(check(OWN).as_json()))
    assert report["valid"]
    assert report["problems"] == []
    assert (report["family"], report["grid"]) == ("acme-vl", {"image": "smart_resize"})
    assert report["match"]["config.json:model_type"] == ["acme_vl"]
    assert "values" not in report


MISTAKES = {
    "an unknown field": ('title = "', 'titel = "a"\ntitle = "', "titel", "did you mean 'title'?"),
    "an unknown field in a table": (
        'chat_text = "', 'chat_txt = "a"\nchat_text = "', "image.chat_txt",
        "did you mean 'chat_text'?",
    ),
    "a lookup's field": (
        "patch_size = { from", "patch_size = { form", "image.grid.patch_size.form",
        "did you mean 'from'?",
    ),
    "a token's field": (
        "equals =", "equal =", "tokens.image.equal", "did you mean 'equals'?",
    ),
    "a grid": (
        '"smart_resize"', '"smartresize"', "image.grid", "did you mean 'smart_resize'?",
    ),
    "a layout": (
        'layout = "fill"', 'layout = "fil"', "image.layout", "did you mean 'fill'?",
    ),
    "a number that no argument changes": (
        'max_pixels = "max_pixels"', 'max_pixels = "maxpixels"', "image.accepts.max_pixels",
        "did you mean 'max_pixels'?",
    ),
    "a number that no argument of the engine changes": (
        "[image.accepts]", "[image.planned_by]\nmax_pixels = 'maxpixels'\n[image.accepts]",
        "image.planned_by.max_pixels", "did you mean 'max_pixels'?",
    ),
    "a field of an argument": (
        'kind = "nullable_switch"', 'kinds = "nullable_switch"', "image.accepts.do_resize.kinds",
        "did you mean 'kind'?",
    ),
    "a word that is named nowhere": (
        'layout = "fill"', "layout = { name = 'fill', fil = 'a' }", "image.layout.fil",
        "did you mean 'fill'?",
    ),
    "a placement rule": (
        'title = "', 'placement = "target"\ntitle = "', "placement", "did you mean 'targets'?",
    ),
    "a placement rule that needs a token": (
        'title = "', 'placement = "aligned_targets"\ntitle = "', "the file", "needs 'pad' in",
    ),
    "a pipeline": (
        "[image]", '[tokenizer.pipelines]\n"*" = "fil"\n[image]',
        "tokenizer.pipelines.*", "did you mean 'file'?",
    ),
    "a tokenizer format": (
        "[image]", '[tokenizer]\nformat = "hugingface"\n[image]', "tokenizer.format",
        "did you mean 'huggingface'?",
    ),
    "a text for a list": ('vllm = ["0.33.0"]', 'vllm = "0.33.0"', "checked.vllm", "list"),
    "a number for a text": ('title = "Acme VL"', "title = 3", "title", "string"),
    "no title": ('title = "Acme VL"', "", "title", "must be given"),
    "a reference without field": (
        '"config.json:model_type"', '"config.json"', "match", "FILE:FIELD",
    ),
    "a file that is not read": (
        'patch_size = { from = ["preprocessor_config.json',
        'patch_size = { from = ["preprocesor_config.json',
        "image.grid.patch_size.from", "did you mean 'preprocessor_config.json'?",
    ),
    "a value of no grid": (
        "patch_size = {", "patchsize = {", "image.grid.patchsize",
        "did you mean 'patch_size'?",
    ),
    "a value the grid needs": (
        "patch_size = {", "# {", "image.grid.patch_size", "needs it",
    ),
    "a token the layout needs": (
        "[tokens.image]", "[tokens.pad]", "image.layout.fill", "needs it",
    ),
    "a target that is no token": (
        'target = "image"', 'target = "imag"', "image.target",
        "did you mean 'image'?",
    ),
    "a default of another kind": (
        "default = 14, note", 'default = "14", note', "image.grid.patch_size.default",
        "must be a valid integer",
    ),
    "a value from nowhere": (
        'merge_size = { from = ["preprocessor_config.json:merge_size"], default = 2,',
        "merge_size = {", "image.grid.merge_size", "neither",
    ),
    "a token that is read in two ways": (
        'text = { from = ["tok', 'id = { default = 1 }\ntext = { from = ["tok', "tokens.image",
        "exactly one",
    ),
    "another format's placement": (
        'title = "', 'placement = "rendered"\ntitle = "', "image.target", "must be absent",
    ),
    "tags without a number": (
        'layout = "fill"', "layout = { name = 'fill', target = '<{n}>' }", "image.chat_text", "{n}",
    ),
    "a known name": ('"acme-vl"', '"qwen2-vl"', "family", "a name of its own"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, check: Callable[..., SpecReport]) -> None:
    right, wrong, place, words = MISTAKES[name]
    assert right in OWN
    report = check(OWN.replace(right, wrong))
    assert not report.valid
    named = [found for found in report.problems if found.place.startswith(place)]
    assert any(words in found.message for found in named), report.problems
    assert str(named[0]).startswith(f"{named[0].place}: {named[0].message}")


def test_all_mistakes_are_named_at_once(check: Callable[..., SpecReport]) -> None:
    """Of several tables, and of those that hang together, in one run."""
    text = OWN.replace('title = "', 'titel = "').replace("patch_size = {", "patchsize = {")
    text = text.replace('target = "image"', 'target = "imag"').replace("max_pixels = {", "# {")
    places = [found.place for found in check(text).problems]
    assert sorted(places) == [
        "image.grid.max_pixels",
        "image.grid.patch_size",
        "image.grid.patchsize",
        "image.target",
        "titel",
        "title",
    ]


def test_every_mistake_the_package_refuses_is_found(check: Callable[..., SpecReport]) -> None:
    """What stops a package's spec at load never passes the check before."""
    refused: dict[str, str] = {}
    for name, (right, wrong, *_) in MISTAKES.items():
        text = OWN.replace(right, wrong)
        try:
            load_spec(text, "acme_vl.toml")
        except SpecError as error:
            refused[name] = str(error)
            assert not check(text).valid
    assert len(refused) > 20
    assert all(message.startswith("acme_vl.toml: ") for message in refused.values())
    assert "did you mean 'smart_resize'?" in refused["a grid"]


def test_a_match_that_is_another_family_s(check: Callable[..., SpecReport]) -> None:
    text = OWN.replace('"acme_vl"', '"acme_vl", "qwen2_vl"')
    assert check(text).valid  # the architectures keep them apart
    text = text.replace('["AcmeVLForConditionalGeneration"]', '["*"]')
    (found,) = [found for found in check(text).problems if "qwen2-vl" in found.message]
    assert found.place == "match"
    assert "acme_vl or qwen2_vl" in found.found


def test_what_is_no_toml(check: Callable[..., SpecReport], tmp_path: Path) -> None:
    (found,) = check('family = "x"\ntitle = \n').problems
    assert found.place == "line 2, column 9"
    assert "not TOML" in found.message
    (found,) = check_spec(tmp_path / "none.toml").problems
    assert "cannot be read" in found.message
    (tmp_path / "latin.toml").write_bytes(b'family = "\xe9"')
    (found,) = check_spec(tmp_path / "latin.toml").problems
    assert "cannot be read" in found.message


def test_tables_that_are_none(check: Callable[..., SpecReport]) -> None:
    report = check("image = 1\ntokens = []\nmatch = 3\nplacement = []\ntokenizer = 2\n")
    places = {found.place for found in report.problems}
    assert {"image", "tokens", "match", "placement", "tokenizer", "family"} <= places


def test_a_broken_installed_spec_is_told(
    check: Callable[..., SpecReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise SpecError("other.toml: title: must be given")

    monkeypatch.setattr("mmroute.lab.specs.check.known_families", fail)
    (found,) = check(OWN).problems
    assert "other.toml" in found.message
    assert "correct or uninstall it first" in found.message


def test_a_grid_that_is_not_known_may_be_of_a_package_that_is_not_installed(
    check: Callable[..., SpecReport],
) -> None:
    (found,) = check(OWN.replace('"smart_resize"', '"own_tiles"')).problems
    assert found.message.endswith("one of a package of your own must be installed before")


def acme(files: Files) -> None:
    """Make a model one of the family of the spec."""
    architectures = ["AcmeVLForConditionalGeneration"]
    files["config.json"] |= {"model_type": "acme_vl", "architectures": architectures}


def test_a_directory_is_resolved_by_the_spec(
    check: Callable[..., SpecReport], changed_model: Callable[..., Path]
) -> None:
    path = str(changed_model("small-qwen2.5-vl", acme))
    report = check(OWN, path)
    assert report.valid, report.problems
    assert report.resolved is not None
    values = {value["name"]: value for value in report.as_json()["values"]}
    assert values["patch_size"]["source"] == "preprocessor_config.json:patch_size"


@pytest.mark.parametrize(("file", "model"), [("llava_1_5", "llava-1.5"), ("qwen2_vl", "qwen2-vl")])
def test_a_shipped_spec_resolves_a_model_of_its_family(
    file: str, model: str, small_model: Callable[[str], Path]
) -> None:
    report = check_spec(
        ROOT / "model_specs" / f"{file}.toml", model=str(small_model(f"small-{model}"))
    )
    assert report.valid, report.problems


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("/nowhere/model", "model_not_found"),
        ("small-qwen2-vl", "config.json:model_type is 'qwen2_vl', wanted acme_vl"),
    ],
)
def test_a_directory_that_is_not_the_family_s(
    model: str,
    words: str,
    check: Callable[..., SpecReport],
    small_model: Callable[[str], Path],
) -> None:
    report = check(OWN, str(small_model(model)) if model.startswith("small") else model)
    (found,) = report.problems
    assert found.place.startswith("model ")
    assert words in found.message
    assert report.resolved is None


def test_a_directory_that_lacks_a_value(
    check: Callable[..., SpecReport], changed_model: Callable[..., Path]
) -> None:
    def change(files: Files) -> None:
        acme(files)
        files["preprocessor_config.json"]["patch_size"] = "14"

    (found,) = check(OWN, str(changed_model("small-qwen2.5-vl", change))).problems
    assert "preprocessor_config.json:patch_size" in found.message


def test_a_file_that_a_package_installed_is_no_other_spec(
    check: Callable[..., SpecReport],
    monkeypatch: pytest.MonkeyPatch,
    changed_model: Callable[..., Path],
) -> None:
    installed = load_spec(OWN, "acme_vl.toml").model_copy(update={"package": "acme-specs"})
    monkeypatch.setattr("mmroute.lab.specs.check.known_families", lambda: (installed,))
    monkeypatch.setattr("mmroute.lab.specs.check.match_family", lambda _: installed)
    report = check(OWN, str(changed_model("small-qwen2.5-vl", acme)))
    assert report.valid, report.problems
    assert report.resolved is not None
    edited = check(OWN.replace('title = "', 'title = "New ', 1))
    assert [problem.place for problem in edited.problems] == ["family", "match"]
    assert "acme-specs" in edited.problems[0].message
    assert "install it again" in edited.problems[0].message
