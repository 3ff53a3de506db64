"""What `mmroute spec check --oracle` asks about: each change of a directory is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mmroute.lab.parity.cases import Outcome
from mmroute.lab.parity.oracles.common import answered
from mmroute.lab.specs.field_answers import fields_of_spec, verdict_of
from mmroute.lab.specs.field_changes import Change, added, changes
from mmroute.model.resolve import resolve_model
from mmroute.model_directory import ModelFiles

FILES: Final[Mapping[str, Any]] = {
    "config.json": {"model_type": "toy", "vision_config": {"patch_size": 14, "bias": None}},
    "preprocessor_config.json": {
        "image_processor_type": "ToyImageProcessor",
        "size": {"height": 64, "width": 64},
        "use_thumbnail": True,
    },
    "processor_config.json": {"image_seq_len": 4},
    "tokenizer_config.json": {"bos_token": "<s>"},
    "chat_template.jinja": "{{ messages }}",
}
KNOWN: Final = {
    "config.json": {"vision_config": {"merge": 2}},
    "preprocessor_config.json": {"tile_size": 512},
    "video_preprocessor_config.json": {"fps": 2},
}
FOUND: Final = [*changes(FILES, KNOWN)]


def leaves(content: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All values of a file by the path of their fields, objects by their kind."""
    yield path, "object" if isinstance(content, Mapping) else repr(content)
    for name, value in content.items() if isinstance(content, Mapping) else ():
        yield from leaves(value, f"{path}.{name}")


def differing(change: Change) -> set[str]:
    """The fields that differ from the files as they are, by file and path."""
    found: set[str] = set()
    for file, content in change.files.items():
        before, after = dict(leaves(FILES.get(file, {}))), dict(leaves(content))
        found |= {
            f"{file}:{path.removeprefix('.')}"
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        }
    return found


@pytest.mark.parametrize(
    "change",
    [
        one
        for one in FOUND
        if one.what.startswith(("dropped", "null", "added")) or " -> " in one.what
    ],
    ids=lambda change: f"{change.file}:{change.field} {change.what}",
)
def test_one_field_differs(change: Change) -> None:
    """In a second place a whole part is new beside the first, which stays as it is."""
    if change.what.endswith("in a second place"):
        assert (
            change.file not in FILES
            or change.files[change.file].items() >= FILES[change.file].items()
        )
        return
    place = f"{change.file}:{change.field}"
    fields = differing(change)
    assert fields
    assert all(field == place or field.startswith(f"{place}.") for field in fields)


@pytest.mark.parametrize(
    ("file", "field", "what", "content"),
    [
        ("preprocessor_config.json", "use_thumbnail", "null", {"use_thumbnail": None}),
        ("preprocessor_config.json", "use_thumbnail", "True -> False", {"use_thumbnail": False}),
        ("preprocessor_config.json", "tile_size", "added None", {"tile_size": None}),
        ("preprocessor_config.json", "tile_size", "added 1024", {"tile_size": 1024}),
        ("video_preprocessor_config.json", "fps", "file with 4 alone", {"fps": 4}),
        (
            "preprocessor_config.json",
            "size",
            "{'height': 64, 'width': 64} -> {'longest_edge': 64}",
            {"size": {"longest_edge": 64}},
        ),
        (
            "preprocessor_config.json",
            "image_processor_type",
            "'ToyImageProcessor' -> 'ToyImageProcessorFast'",
            {"image_processor_type": "ToyImageProcessorFast"},
        ),
        (
            "config.json",
            "vision_config.patch_size",
            "14 -> 28",
            {"vision_config": {"patch_size": 28, "bias": None}},
        ),
    ],
)
def test_value_is_changed(file: str, field: str, what: str, content: dict[str, Any]) -> None:
    change = Change(file, field, what, {file: {**FILES.get(file, {}), **content}})
    assert change in FOUND


def test_files_move_to_where_other_versions_save_them() -> None:
    nested = {"image_seq_len": 4, "image_processor": FILES["preprocessor_config.json"]}
    moved = {"preprocessor_config.json": None, "processor_config.json": nested}
    assert moved in [change.files for change in FOUND]
    back = {"preprocessor_config.json": FILES["preprocessor_config.json"],
            "processor_config.json": {"image_seq_len": 4}}  # fmt: skip
    assert back in [change.files for change in changes({"processor_config.json": nested}, {})]


@pytest.mark.parametrize(
    "place", ["chat_template.json", "processor_config.json", "tokenizer_config.json"]
)
def test_template_moves_and_another_stands_beside_it(place: str) -> None:
    text = FILES["chat_template.jinja"]
    found = [change.files for change in FOUND if "template" in change.field]
    content = {**FILES.get(place, {}), "chat_template": text}
    assert {"chat_template.jinja": None, place: content} in found
    another = {**content, "chat_template": "{{ 'another ' }}" + text}
    assert {place: another} in found


def test_every_change_has_a_name_of_its_own_and_leaves_the_files_as_they_are() -> None:
    files = copy.deepcopy(FILES)
    found = [*changes(files, KNOWN)]
    assert files == FILES
    names = [(change.file, change.field, change.what) for change in found]
    assert len(set(names)) == len(names)
    assert found == FOUND  # drawn by the seed alone


def test_fields_that_the_spec_reads_are_added_though_the_class_has_other_names(
    changed_model: Callable[..., Path],
) -> None:
    directory = changed_model("small-minicpm-v-4.5", lambda _: None)
    files = ModelFiles("", directory)
    known = {"preprocessor_config.json": {"slice_mode": True}}
    named = fields_of_spec(resolve_model(str(directory)), files, known)
    own = {"preprocessor_config.json": files.object("preprocessor_config.json")}
    found = [change.files for change in added(own, named)]
    assert _changed(own, im_start=None) in found
    assert _changed(own, slice_end="</slice>x") in found
    fields = {change.field for change in added(own, named)}
    assert not {"slice_mode", "max_slice_nums"} & fields


def _changed(own: Mapping[str, Any], **fields: object) -> dict[str, Any]:
    return {file: {**content, **fields} for file, content in own.items()}


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict"),
    [
        (answered([1, 2], [(0, 1)]), answered([1, 2], [(0, 1)]), "right"),
        (answered([1, 2], [(0, 1)]), answered([1, 3], [(0, 1)]), "silent"),
        (answered([1, 2], [(0, 1)]), answered([1, 2], [(1, 1)]), "silent"),
        (Outcome(refusal="KeyError: 6"), answered([1], None), "accepted"),
        (answered([1], None), Outcome(refusal="image_refused: it is thin"), "refused"),
        (Outcome(refusal="KeyError: 6"), Outcome(refusal="image_refused: it is thin"), "neither"),
        (answered([1], None), Outcome(refusal="KeyError: 'size'"), "crashed"),
        (Outcome(refusal="RuntimeError: can't allocate memory"), answered([1], None), "undecided"),
        (Outcome(refusal="ImportError: av is missing"), answered([1], None), "undecided"),
    ],
)
def test_verdict(theirs: Outcome, ours: Outcome, verdict: str) -> None:
    assert verdict_of(theirs, ours) == verdict
