"""The requests of `mmroute validate`: built in, and of a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_models import SMALL_MODELS, Files

from mmroute import Normalizer
from mmroute.answering.pipeline import answer
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.errors import MmrouteError, Reason
from mmroute.lab.parity.boundaries import boundary_sizes
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.comparison import our_outcome
from mmroute.lab.parity.suite import built_in_cases, cases_from_file, proof_cases
from mmroute.model.resolve import resolve_model
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.items import ImageSize, Modality
from mmroute.requests.lines import request_of

MODELS = [*SMALL_MODELS, EMBEDDED_MODEL]


KINDS = {
    "rounding", "limits", "aspect", "tiny", "order", "multi-turn", "system", "unicode",
    "whitespace", "special-tokens", "typed-placeholder", "placeholders", "tools", "options", "bos",
    "token-ids", "several"}  # fmt: skip


Load = Callable[[str], Normalizer]


@pytest.mark.parametrize("name", MODELS)
def test_built_in_cases(name: str, normalizer: Load, suite: Callable[[str], list[Case]]) -> None:
    model, cases = normalizer(name), suite(name)
    media = {modality.value for modality in model.model.media} - {"image"}
    assert {case.kind for case in cases} == KINDS | media
    assert len({case.id for case in cases}) == len(cases)
    assert 60 <= len(cases) <= 140
    exact = 0
    for case in cases:
        line = json.dumps({"id": case.id, **case.request})
        exact += model.answer(request_of(json.loads(line))).exact
    assert len(cases) * 0.75 < exact < len(cases)


def test_each_video_of_a_proof_has_block_hashes(small_model: Callable[[str], Path]) -> None:
    """Also under releases that give names to files of videos which mmroute does not predict."""
    model = resolve_model(str(small_model("small-exaone-4.5")), backend="vllm==0.29.0")
    videos = [case for case in proof_cases(model) if case.kind == Modality.VIDEO]
    named = [case for case in videos if case.id.endswith("-named")]
    assert 2 * len(named) == len(videos) > 20
    routings = [answer(model, request_of({"id": case.id, **case.request})) for case in named]
    exact = [routing for routing in routings if routing.exact]
    assert len(exact) > 10
    for routing in exact:
        routing.block_hashes(block_size=16)  # raises where a name is not known


@pytest.mark.parametrize("name", MODELS)
def test_every_other_choice_shows_in_the_suite(name: str, normalizer: Load) -> None:
    """A geometry with one choice made otherwise counts some size of the suite otherwise."""
    model = normalizer(name).model
    geometry: Any = model.media[Modality.IMAGE].geometry
    context = model.context
    sizes = [size for _, size in boundary_sizes(geometry, context)]
    changes = {
        "rounding": "half_even" if getattr(geometry.grid, "rounding", None) == "down" else "down",
        "merge_size": 3,
        "patch_size": 15,
        "num_crops": 5,
        "max_side": 1000,
        "min_pixels": 200000,
        "max_pixels": 1003520,
        "max_tiles": 6,
    }
    for field in dataclasses.fields(geometry.grid):
        if field.name in changes and getattr(geometry.grid, field.name) is not None:
            grid = replace(geometry.grid, **{field.name: changes[field.name]})
            other = replace(geometry, grid=grid)
            counts = [(_count(geometry, s, context), _count(other, s, context)) for s in sizes]
            assert any(ours != theirs for ours, theirs in counts), field.name


def _count(geometry: Any, size: ImageSize, context: Any) -> int | None:
    """The number of tokens of an image; None if it is refused."""
    try:
        return sum(len(one.token_ids) for one in geometry.replacements([size], context))
    except (MmrouteError, ArithmeticError, ValueError, IndexError):
        return None


def test_boundaries_are_neighbours(normalizer: Load) -> None:
    """Qwen3-VL rounds half to even: 720 is 22.5 times 32."""
    model = normalizer("small-qwen3-vl").model
    cases = boundary_sizes(model.media[Modality.IMAGE].geometry, model.context)
    sizes = {(size.width, size.height) for _, size in cases}
    assert {(200, 1), (201, 1), (1400, 7), (1401, 7), (656, 480), (657, 480)} <= sizes


def test_a_model_without_images_or_template(normalizer: Load) -> None:
    model = normalizer("small-pixtral-hf").model
    assert isinstance(model.chat, HfChat)
    mute = Normalizer(replace(model, chat=replace(model.chat, template=None, tool_template=None)))
    cases = built_in_cases(mute.model)
    assert {case.kind for case in cases if "messages" in case.request} == {"tools", "options"}
    assert sum(our_outcome(mute.model, case).token_ids is not None for case in cases) > 60
    blind = Normalizer(replace(model, media={}))
    cases = built_in_cases(blind.model)
    assert [case.id for case in cases if case.request.get("images")] == ["order-first"]


def test_cases_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n\n{"id": 7, "prompt": "c"}\n', encoding="utf-8")
    assert cases_from_file(path) == [
        Case("line-1", "file", {"prompt": "a\u2028b"}),
        Case("7", "file", {"prompt": "c"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", Reason.MALFORMED_FILE),
        ("[]", Reason.MALFORMED_FILE),
        ('{"id": "a", "prompt": "again"}', Reason.MALFORMED_FILE),
        ('{"images": [{"width": 0, "height": 1}]}', Reason.INVALID_REQUEST),
    ],
)
def test_a_wrong_line_of_a_file_is_named(line: str, reason: Reason, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"id": "a", "prompt": "x"}\n' + line, encoding="utf-8")
    with pytest.raises(MmrouteError, match=r"requests\.jsonl, line 2: ") as caught:
        cases_from_file(path)
    assert caught.value.reason is reason


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MmrouteError, match=r"none\.jsonl") as caught:
        cases_from_file(tmp_path / "none.jsonl")
    assert caught.value.reason is Reason.MISSING_FILE


def test_chats_with_several_items_are_answered(
    changed_model: Callable[..., Path],
) -> None:
    def with_videos(files: Files) -> None:
        files["chat_template.json"]["chat_template"] += (
            "{% for m in messages %}{% for p in m.content if p.type == 'video' %}"
            "<|vision_start|><|video_pad|><|vision_end|>{% endfor %}{% endfor %}"
        )

    videos = Normalizer.from_pretrained(changed_model("small-qwen2.5-vl", with_videos)).model
    several = {case.id: case for case in built_in_cases(videos) if case.kind == "several"}
    assert several["image-beside-video"].modalities == {Modality.IMAGE, Modality.VIDEO}
    for case in several.values():
        assert our_outcome(videos, case).token_ids is not None, case.id
