"""What users rely on in an answer, whatever the model: shapes, ranges, reasons, limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from chat_requests import user
from hypothesis import given
from hypothesis import strategies as st
from image_vectors import data_url, image_files
from small_models import Files

from mmroute import ImageSize, InexactError, Normalizer, Reason, Request
from mmroute.answering.hash_forms import BlockForm
from mmroute.cli.requests import answer_line, blocks_answer, tokens_answer
from mmroute.hashing import Algorithm
from mmroute.requests.request import RequestFields

ASK = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]


def test_inexact_answers_have_no_ids(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer("small-qwen2.5-vl").normalize(messages=ASK)
    assert not routing.exact
    assert routing.placeholders == ()
    with pytest.raises(InexactError) as caught:
        _ = routing.token_ids
    assert caught.value.reason is routing.reason is Reason.IMAGE_COUNT_MISMATCH


IMAGE = {"type": "image"}


def test_arguments_of_normalize_are_the_fields_of_a_request() -> None:
    fields, arguments = get_type_hints(Request), get_type_hints(RequestFields)
    assert fields.keys() == arguments.keys()
    for name, kind in fields.items():
        assert arguments[name] in (kind, kind | None), name
        assert f"``{name}: " in str(Normalizer.normalize.__doc__)


def test_a_prompt_may_leave_one_token_for_the_answer(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer("small-qwen2.5-vl")
    longest = model.model.max_model_len - 1
    assert model.normalize(prompt_token_ids=[1] * longest).exact
    assert not model.normalize(prompt_token_ids=[1] * (longest + 1)).exact


def test_large_requests_are_answered(normalizer: Callable[[str], Normalizer]) -> None:
    """500 images and a prompt near the limit: an answer, not a crash."""
    model = normalizer("small-phi-3-vision")
    many = model.normalize(messages=user(*[IMAGE] * 500), images=[ImageSize(9, 9)] * 500)
    assert many.reason is Reason.PROMPT_TOO_LONG
    qwen = normalizer("small-qwen2.5-vl")
    many = qwen.normalize(messages=user(*[IMAGE] * 500), images=[ImageSize(9, 9)] * 500)
    assert len(many.placeholders) == 500


DOG: list[dict[str, Any]] = [{"role": "user", "content": "dog"}]


@pytest.fixture
def with_template(changed_model: Callable[..., Path]) -> Callable[[str], Normalizer]:
    """A small model with another chat template."""

    def load(source: str) -> Normalizer:
        written = {"chat_template.json": {"chat_template": source}}
        directory = changed_model("small-qwen2.5-vl", lambda files: files.update(written))
        return Normalizer.from_pretrained(directory)

    return load


def test_a_template_that_raises_is_a_reason(with_template: Callable[[str], Normalizer]) -> None:
    routing = with_template("{{ raise_exception('only cats') }}").normalize(messages=DOG)
    assert routing.reason is Reason.CHAT_TEMPLATE_FAILED
    assert "only cats" in routing.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ strftime_now('%Y') }}",
        "{{ lipsum() }}",
        "{{ [1, 2] | random }}",
        "{% if strftime_now('%Y') is string %}a{% endif %}",
        "{% if strftime_now('%Y') is sequence %}a{% endif %}",
        "{{ strftime_now('%Y') | upper }}",
        "{{ 'a' ~ strftime_now('%Y') }}",
        "{% if strftime_now('%Y').upper is defined %}a{% endif %}",
        "{% if strftime_now('%Y') in ['2025'] %}a{% endif %}",
        "{{ messages[0].items }}",
        "{{ messages[0]['items'] | string | length }}",
        "{% set name = 'items' %}{{ 'a' ~ messages[0][name] }}",
        "{{ messages[0] | attr('items') }}",
        "{{ 'a'.upper }}",
        "{{ messages | map(attribute='items') | join }}",
        "{{ messages | reverse }}",
        "{{ raise_exception }}",
        "{{ joiner() }}{{ cycler('a') | string }}",
    ],
)
def test_a_template_that_no_other_process_renders_so_is_a_reason(
    source: str, with_template: Callable[[str], Normalizer]
) -> None:
    model = with_template("{% if messages | length > 1 %}" + source + "{% endif %}x")
    assert model.normalize(messages=DOG).exact
    routing = model.normalize(messages=DOG * 2)
    assert routing.reason is Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE


def test_a_template_may_ask_for_the_moment_and_never_write_it(
    with_template: Callable[[str], Normalizer],
) -> None:
    template = "{% if not day is defined %}{% set day = strftime_now('%d') %}{% endif %}x"
    assert with_template(template).normalize(messages=DOG).exact


def test_a_template_may_use_what_it_must_not_write(
    with_template: Callable[[str], Normalizer],
) -> None:
    model = with_template(
        "{% set each = messages[0].items %}{% if each and each is callable %}"
        "{% for key, value in each() | reverse | map('reverse') | map('list') %}"
        "{{ key }}{{ value }}{% endfor %}{{ cycler('a').next() }}{{ joiner('b')() }}"
        "{{ messages[0]['keys']() | list | first }}{% endif %}"
    )
    routing = model.normalize(messages=DOG)
    text = model.model.tokenizer.decode(routing.token_ids.tolist())
    assert text.replace(" ", "") == "dogcontentuserrolearole"


def test_numpy_ids_are_read_and_answers_are_read_only(
    normalizer: Callable[[str], Normalizer],
) -> None:
    ids = normalizer("small-qwen2.5-vl").normalize(prompt="a b").token_ids
    again = normalizer("small-qwen2.5-vl").normalize(prompt_token_ids=ids).token_ids
    assert again.tolist() == ids.tolist()
    assert ids.dtype == np.uint32
    assert ids.flags["C_CONTIGUOUS"]
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
PNG = data_url(image_files()["png"])
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "image_url", "thinking", "file"]) | JSON},
    optional={
        "text": JSON,
        "image_url": JSON | st.just({"url": PNG}),
        "uuid": JSON | st.text(max_size=2),
        "thinking": JSON,
    },
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool"]) | JSON},
    optional={
        "content": JSON | st.lists(PART | JSON, max_size=3),
        "tool_calls": JSON,
        "name": JSON,
        "reasoning": JSON,
        "tools": JSON,
    },
)
LINE = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "messages": st.lists(MESSAGE | JSON, max_size=3) | JSON,
        "prompt": st.text(max_size=8) | JSON,
        "prompt_token_ids": JSON,
        "images": st.lists(st.dictionaries(st.sampled_from(["width", "height", "uuid"]), JSON))
        | JSON,
        "cache_salt": JSON,
        "lora": JSON | st.fixed_dictionaries({"lora_name": st.text(), "lora_path": st.text()}),
        "tools": JSON,
        "mm_processor_kwargs": st.dictionaries(st.sampled_from(["size", "min_pixels"]), JSON),
        "chat_template_kwargs": JSON,
        "continue_final_message": JSON,
    },
)


@given(
    line=LINE,
    algorithm=st.sampled_from(Algorithm),
    name=st.sampled_from(["small-qwen2.5-vl", "pixtral-12b-2409", "small-llava-1.5"]),
)
def test_no_json_raises(
    line: Any, algorithm: Algorithm, name: str, normalizer: Callable[[str], Normalizer]
) -> None:
    answer = answer_line(json.dumps(line), normalizer(name).answer, tokens_answer)
    assert answer["exact"] is ("token_ids" in answer) is ("reason" not in answer)
    read = partial(blocks_answer, form=BlockForm(algorithm, 2, "0"))
    blocks = answer_line(json.dumps(line), normalizer(name).answer, read)
    assert blocks["exact"] is ("block_hashes" in blocks) is ("reason" not in blocks)
    assert answer["exact"] or not blocks["exact"]


def test_a_template_cannot_reach_python(with_template: Callable[[str], Normalizer]) -> None:
    source = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    routing = with_template(source).normalize(messages=DOG)
    assert routing.reason is Reason.CHAT_TEMPLATE_FAILED
    assert "unsafe" in routing.message


def test_one_model_serves_many_threads(normalizer: Callable[[str], Normalizer]) -> None:
    models = [normalizer(name) for name in ("pixtral-12b-2409", "small-phi-3-vision")]
    sizes = [ImageSize(16 * n, 16) for n in range(1, 40)]

    def ask(size: ImageSize) -> list[list[int]]:
        return [m.normalize(messages=ASK, images=[size]).token_ids.tolist() for m in models]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, sizes)) == [ask(size) for size in sizes]


def test_one_uuid_names_one_image(normalizer: Callable[[str], Normalizer]) -> None:
    """The engine caches by uuid, so a second size under one uuid has no answer of its own."""
    model = normalizer("small-qwen2.5-vl")
    same = [ImageSize(100, 100, "u"), ImageSize(100, 100, "u")]
    assert model.normalize(messages=user(IMAGE, IMAGE), images=same).exact
    other = [ImageSize(100, 100, "u"), ImageSize(400, 300, "u")]
    routing = model.normalize(messages=user(IMAGE, IMAGE), images=other)
    assert routing.reason is Reason.UNSUPPORTED_FIELD
    assert "'u'" in routing.message


def test_reasoning_that_is_no_text_reaches_the_template(
    changed_model: Callable[..., Path],
) -> None:
    def change(files: Files) -> None:
        template = "{% for m in messages %}{{ m.reasoning | tojson }}{% endfor %}"
        files["chat_template.json"] = {"chat_template": template}

    model = Normalizer.from_pretrained(str(changed_model("small-qwen2.5-vl", change)))
    for reasoning in (["r"], 5, 5.0, True, False, {"a": None}):
        message = {"role": "assistant", "content": "a", "reasoning": reasoning}
        expected = model.normalize(prompt=json.dumps(reasoning)).token_ids.tolist()
        assert model.normalize(messages=[message]).token_ids.tolist() == expected
