"""The names that `mmroute validate` gives to what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_helpers import RightEngine

from mmroute import Normalizer
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.errors import InexactError, ModelError
from mmroute.geometry import CachePlan, ModelContext, Overrides, Replacement, TokenIds
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.parity.alternatives import alternatives
from mmroute.parity.boundaries import boundary_sizes
from mmroute.parity.cases import Case, Outcome
from mmroute.parity.comparison import Finding, Verdict, compare, our_outcome
from mmroute.parity.diagnosis import Cause, Diagnosis, diagnose
from mmroute.parity.page import as_page
from mmroute.parity.report import Report
from mmroute.parity.suite import built_in_cases
from mmroute.placement import Expansion, Insertion
from mmroute.requests.items import ImageSize, Modality
from mmroute.tokenizers.formats.fast import HfTokenizer

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
    images = replace(images, geometry=replace(geometry, **changes))
    return Normalizer(replace(normalizer.model, media={Modality.IMAGE: images}))


# The diagnosis: each fault is planted in mmroute, or in the oracle's answer


def test_special_token_split(changed_model: Callable[..., Path], normalizer: Load) -> None:
    """Qwen2-VL's added tokens stand in tokenizer_config.json only."""

    def leave_out(files: dict[str, Any]) -> None:
        added = files["tokenizer_config.json"]["added_tokens_decoder"]
        for key in [key for key, token in added.items() if "image_pad" in token["content"]]:
            del added[key]

    def add_one(files: dict[str, Any]) -> None:
        config = files["tokenizer_config.json"]
        added = config["added_tokens_decoder"]
        last = max(added, key=int)
        added[str(int(last) + 1)] = {**added[last], "content": "<|fim_pad|>"}
        config["additional_special_tokens"] = ["<|fim_pad|>"]

    with pytest.raises(ModelError):
        Normalizer.from_pretrained(str(changed_model("small-qwen2-vl", leave_out)))

    faulty = normalizer("small-qwen2-vl")
    right = Normalizer.from_pretrained(str(changed_model("small-qwen2-vl", add_one)))
    case = chat(text("a <|fim_pad|> b"), IMAGE, sizes=((60, 60),))
    for ours, theirs, split in ((faulty, right, "mmroute"), (right, faulty, "the oracle")):
        found = diagnosed(ours, theirs, case)
        assert found.cause is Cause.SPECIAL_TOKEN_SPLIT
        assert "'<|fim_pad|>'" in found.explanation
        assert f"pieces in {split}" in found.explanation
    suite = [
        f
        for f in compare(faulty.model, RightEngine(right.model), built_in_cases(right.model))
        if f.diagnosis
    ]
    assert {f.diagnosis.cause for f in suite if f.diagnosis} == {Cause.SPECIAL_TOKEN_SPLIT}


@pytest.mark.parametrize("name", ["small-llava-1.5", "small-pixtral-hf", EMBEDDED_MODEL])
def test_bos(name: str, normalizer: Load) -> None:
    model = normalizer(name)
    case = Case("c", "test", {"prompt": "Hello there", "add_special_tokens": True})
    full, ids = answered(model, case)
    none, doubled = (Outcome(ids[1:], ()), Outcome(np.concatenate([ids[:1], ids]), ()))
    assert diagnose(model.model, case, none, full).cause is Cause.BOS_MISSING
    assert diagnose(model.model, case, full, none).cause is Cause.BOS_EXTRA
    assert diagnose(model.model, case, full, doubled).cause is Cause.BOS_MISSING
    found = diagnose(model.model, case, doubled, full)
    assert found.cause is Cause.BOS_EXTRA
    assert found.first_difference == 1
    assert "mmroute has 2, the oracle 1" in found.explanation


@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-mistral3", "small-gemma-3"])
def test_wrong_fill(name: str, normalizer: Load) -> None:
    right = normalizer(name)
    geometry: Any = right.model.media[Modality.IMAGE].geometry
    wrong = geometry.image_token_id - 1  # as 151654 is beside Qwen's 151655
    faulty = with_geometry(right, image_token_id=wrong)
    case = chat(IMAGE, text("and"), IMAGE, sizes=((60, 90), (200, 40)))
    found = diagnosed(faulty, right, case)
    assert found.cause is Cause.WRONG_FILL
    assert f"{wrong} (" in found.explanation
    assert f"{geometry.image_token_id} (" in found.explanation


@pytest.mark.parametrize("name", ["small-pixtral-hf", "small-mistral3"])
@pytest.mark.parametrize("ranges", [True, False])
def test_wrong_rounding(
    name: str, ranges: bool, normalizer: Load, suite: Callable[[str], list[Case]]
) -> None:
    right = normalizer(name)
    faulty = with_geometry(right, rounding="half_even")
    causes = set()
    for case in suite(name):
        ours, theirs = our_outcome(faulty.model, case), our_outcome(right.model, case)
        if not ours.same(theirs) and ours.token_ids is not None and theirs.token_ids is not None:
            told = theirs if ranges else replace(theirs, ranges=None)
            found = diagnose(faulty.model, case, ours, told)
            causes.add(found.cause)
            assert found.alternatives[0] == "rounding='down'", found
            size = case.request["images"][0]
            assert f"of {size['width']}x{size['height']} has" in found.explanation
    assert causes == {Cause.WRONG_COUNT}


def test_wrong_rounding_in_mistral_format(normalizer: Load) -> None:
    """The renderer has placed the images, so the prompt is taken apart instead."""
    model = normalizer(EMBEDDED_MODEL)
    down = with_geometry(model, rounding="down").model.media[Modality.IMAGE]
    context = model.model.context
    for _, size in boundary_sizes(down.geometry, context):
        case = one(size.width, size.height)
        ours = our_outcome(model.model, case)
        try:
            (replacement,) = down.geometry.replacements([size], context)
        except InexactError:
            continue
        if ours.token_ids is None or len(replacement.token_ids) == ours.ranges[0][1]:  # type: ignore[index]
            continue
        ((offset, length),) = ours.ranges or ()
        ids = np.concatenate(
            [ours.token_ids[:offset], replacement.token_ids, ours.token_ids[offset + length :]]
        )
        found = diagnose(
            model.model, case, ours, Outcome(ids, ((offset, len(replacement.token_ids)),))
        )
        assert found.cause is Cause.WRONG_COUNT
        assert "rounding='down'" in found.alternatives
        return
    pytest.fail("no size of the suite is rounded otherwise")


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("small-qwen2-vl", {"max_pixels": 1003520}, "max_pixels=12845056"),
        ("small-qwen3-vl", {"min_pixels": 3136}, "min_pixels=65536"),
        ("small-pixtral-hf", {"max_side": 1540}, "max_side=1024"),
        ("small-phi-3-vision", {"num_crops": 4}, "num_crops=16"),
        ("small-qwen2.5-vl", {"patch_size": 16}, "patch_size=14"),
        ("small-llava-1.5", {"select_strategy": "full"}, "select_strategy='default'"),
        ("small-llava-onevision", {"max_tiles": 6}, "max_tiles=9"),
    ],
)
def test_wrong_limit(
    name: str,
    wrong: dict[str, Any],
    right: str,
    normalizer: Load,
    suite: Callable[[str], list[Case]],
) -> None:
    model = normalizer(name)
    faulty = with_geometry(model, **wrong)
    sizes = [case for case in suite(name) if case.kind in OF_SIZES][::4]
    proposed = []
    for finding in compare(faulty.model, RightEngine(model.model), sizes):
        if finding.verdict is Verdict.SILENT and finding.diagnosis is not None:
            if finding.theirs is not None and finding.theirs.token_ids is None:
                assert finding.diagnosis.cause is Cause.ORACLE_REFUSES
                continue
            assert finding.diagnosis.cause is Cause.WRONG_COUNT, finding.diagnosis
            proposed.append(finding.diagnosis.alternatives)
    assert proposed
    field = right.partition("=")[0]
    assert all(any(name.startswith(field) for name in names) for names in proposed if names)
    assert any(right in names for names in proposed), proposed[:5]


def test_a_count_that_nothing_explains(normalizer: Load) -> None:
    model = normalizer("small-qwen2-vl")
    case = one(300, 200)
    ours, ids = answered(model, case)
    ((offset, length),) = ours.ranges or ()
    theirs = Outcome(np.insert(ids, offset, [ids[offset]] * 6).astype(np.uint32))
    found = diagnose(model.model, case, ours, theirs)
    assert found.cause is Cause.WRONG_COUNT
    assert f"{length} tokens in mmroute and {length + 6} in the oracle" in found.explanation
    assert "300x200" in found.explanation


class Reversed:
    """A placement rule that gives the first placeholder the last image."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def expand(self, ids: Any, insertions: Sequence[Insertion]) -> Expansion:
        pairs = zip(insertions, reversed(insertions), strict=True)
        turned = [here._replace(replacement=other.replacement) for here, other in pairs]
        expansion: Expansion = self.inner.expand(ids, turned)
        return expansion


@pytest.mark.parametrize("name", ["small-qwen2-vl", "small-llava-next", "small-mistral3"])
@pytest.mark.parametrize("ranges", [True, False])
def test_placement_order(name: str, ranges: bool, normalizer: Load) -> None:
    right = normalizer(name)
    placement: Any = Reversed(right.model.placement)
    faulty = Normalizer(replace(right.model, placement=placement))
    parts = (IMAGE, text("and"), IMAGE, text("or"), IMAGE)
    case = chat(*parts, sizes=((60, 90), (700, 400), (300, 300)))
    ours, theirs = our_outcome(faulty.model, case), our_outcome(right.model, case)
    found = diagnose(faulty.model, case, ours, theirs if ranges else replace(theirs, ranges=None))
    assert found.cause is Cause.PLACEMENT_ORDER
    assert "3, 2, 1" in found.explanation


def test_images_elsewhere(normalizer: Load) -> None:
    model = normalizer("small-llava-1.5")
    case = chat(text("What?"), IMAGE, sizes=((60, 90),))
    ours, ids = answered(model, case)
    ((offset, length),) = ours.ranges or ()
    moved = np.concatenate([ids[offset : offset + length], ids[:offset], ids[offset + length :]])
    found = diagnose(model.model, case, ours, Outcome(moved, ((0, length),)))
    assert found.cause is Cause.PLACEMENT_ORDER


class RoundTrip:
    """A tokenizer whose text was decoded and encoded before: one piece became two."""

    def __init__(self, inner: Any, merged: int, parts: list[int]) -> None:
        self.inner, self.merged, self.parts = inner, merged, parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        ids = self.inner.encode(text, add_special_tokens=add_special_tokens).tolist()
        parts = [p for t in ids for p in (self.parts if t == self.merged else [t])]
        return np.array(parts, dtype=np.uint32)


def test_decode_round_trip(normalizer: Load) -> None:
    right = normalizer("small-qwen2-vl")
    tokenizer = right.model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    merged, parts = tokenizer.token_id("in"), [tokenizer.token_id("i"), tokenizer.token_id("n")]
    broken: Any = RoundTrip(tokenizer, merged, parts)  # type: ignore[arg-type]
    faulty = Normalizer(replace(right.model, tokenizer=broken))
    found = diagnosed(faulty, right, chat(IMAGE, text("in"), sizes=((60, 90),)))
    assert found.cause is Cause.DECODE_ROUND_TRIP
    assert f"{parts} in mmroute, [{merged}] in the oracle" in found.explanation


def test_template(normalizer: Load) -> None:
    """LLaVA-OneVision's processor and tokenizer have a template each."""
    right = normalizer("small-llava-onevision")
    model_chat = right.model.chat
    assert isinstance(model_chat, HfChat)
    faulty = Normalizer(
        replace(right.model, chat=replace(model_chat, template=model_chat.tool_template))
    )
    found = diagnosed(faulty, right, one(300, 200))
    assert found.cause is Cause.TEMPLATE
    assert "The oracle rendered the chat template of chat_template.json" in found.explanation
    assert "mmroute that of tokenizer_config.json:chat_template" in found.explanation


@pytest.mark.parametrize("name", ["small-mistral3", "small-llava-next", EMBEDDED_MODEL])
def test_orientation(name: str, normalizer: Load) -> None:
    model = normalizer(name)
    case = chat(IMAGE, IMAGE, sizes=((640, 200), (300, 300)))
    turned = chat(IMAGE, IMAGE, sizes=((200, 640), (300, 300)))
    found = diagnose(
        model.model, case, our_outcome(model.model, case), our_outcome(model.model, turned)
    )
    assert found.cause is Cause.ORIENTATION
    assert "640x200 by mmroute and as 200x640 by the oracle" in found.explanation


def test_what_needs_no_search(normalizer: Load) -> None:
    model = normalizer("small-qwen2-vl")
    case = one(300, 200)
    ours, ids = answered(model, case)
    refused = diagnose(model.model, case, ours, Outcome(refusal="ValueError: too wide"))
    assert refused.cause is Cause.ORACLE_REFUSES
    assert "too wide" in refused.explanation
    ranges = diagnose(model.model, case, ours, Outcome(ids, ((1, 2),)))
    assert ranges.cause is Cause.RANGES_ONLY
    assert "at 1 with length 2 in the oracle" in ranges.explanation
    other = diagnose(model.model, case, ours, Outcome(np.array([1, 2, 3], np.uint32), ()))
    assert other.cause is Cause.OTHER
    assert "the oracle 3" in other.explanation


def test_equal_answers_are_not_diagnosed(
    normalizer: Load, suite: Callable[[str], list[Case]]
) -> None:
    model = normalizer("small-gemma-3")
    findings = list(compare(model.model, RightEngine(model.model), suite("small-gemma-3")))
    assert {finding.verdict for finding in findings} == {Verdict.EQUAL}


NO_CONTEXT = ModelContext(0, lambda _: np.array([], np.uint32))


class Odd:
    """A geometry that is no dataclass: of it only the size can be varied."""

    def max_embeds(self, _: CachePlan) -> int:
        return 100

    def with_overrides(self, overrides: Overrides) -> Odd:
        del overrides
        return self

    def replacements(self, items: Any, context: ModelContext) -> Iterator[Replacement]:
        del context
        return (Replacement(np.full(i.width, 5, np.uint32)) for i in items)


def test_alternatives_of_any_geometry() -> None:
    found = [other.name for other in alternatives(Odd(), (ImageSize(10, 10),), NO_CONTEXT, 11)]
    assert found == [
        "+1 pixels of width, +0 of height",
        "+1 pixels of width, +1 of height",
        "+1 pixels of width, -1 of height",
    ]


def test_a_page_shows_what_was_not_decided(normalizer: Load) -> None:
    model = normalizer("small-qwen2.5-vl").model
    case = one(28, 28)
    finding = Finding(case, our_outcome(model, case), None, Verdict.UNDECIDED, note="cannot say")
    report = Report(model.name, "qwen2.5-vl", "vllm", (finding,), model.tokenizer)
    assert "cannot say" in as_page(report)
