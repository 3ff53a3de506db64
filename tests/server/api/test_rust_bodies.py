"""Bodies of requests as vLLM's Rust frontend takes them, by its own answers (0.33.0)."""

from __future__ import annotations

from typing import Any

import pytest

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.requests.lines import request_of
from mmroute.server.engines.vllm import ApiError, LoadedModel, answer_body

CHAT, COMPLETION = "/v1/chat/completions/render", "/v1/completions/render"
HI = {"messages": [{"role": "user", "content": "Hi there"}]}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAA"
    "AABJRU5ErkJggg=="
)
WITH_IMAGE = {
    "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    from small_models import SMALL_MODELS, write_model

    directory = write_model(SMALL_MODELS["small-llava-1.5"](), tmp_path_factory.mktemp("m") / "m")
    settings = RustSettings()
    normalizer = Normalizer.from_pretrained(directory, model_id="llava", engine_settings=settings)
    return LoadedModel.of(normalizer, "m")


def ids(model: LoadedModel, path: str, body: dict[str, Any]) -> list[int]:
    (routing,) = answer_body(model, path, body).routings
    found: list[int] = routing.token_ids.tolist()
    return found


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (CHAT, {"add_generation_prompt": 1}),
        (CHAT, {"add_generation_prompt": "true"}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}),
        (COMPLETION, {"prompt": ["Hi"]}),
        (COMPLETION, {"prompt": [[5, 6]]}),
        (COMPLETION, {"prompt": [5.0, 6.0]}),
        (COMPLETION, {"prompt": "Hi", "add_special_tokens": 1}),
        (COMPLETION, {"prompt": "Hi", "suffix": ""}),
    ],
)
def test_values_that_the_rust_frontend_does_not_take_are_refused(
    path: str, more: dict[str, Any], model: LoadedModel
) -> None:
    with pytest.raises(ApiError) as error:
        answer_body(model, path, more if path == COMPLETION else {**HI, **more})
    assert error.value.status == 400


def test_a_chat_to_forward_has_the_same_types(model: LoadedModel) -> None:
    with pytest.raises(ApiError, match="add_generation_prompt"):
        answer_body(model, "/v1/chat/completions/forward", {**HI, "add_generation_prompt": "true"})


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 1},
        {"documents": ["a text"]},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
        {"add_generation_prompt": None},
        {"stream": None, "return_token_ids": None, "unknown": 5},
        {"return_prompt_text": False, "length_penalty": 1, "n": 1},
        {"repetition_detection": None},
        {"repetition_detection": {"max_pattern_size": 3, "min_count": 2, "unknown": 1}},
    ],
)
def test_values_that_change_nothing(more: dict[str, Any], model: LoadedModel) -> None:
    assert ids(model, CHAT, {**HI, **more}) == ids(model, CHAT, HI)


def test_token_ids_outside_the_vocabulary(model: LoadedModel) -> None:
    last = model.model.max_token_id
    assert ids(model, COMPLETION, {"prompt": [5, last]}) == [5, last]
    with pytest.raises(ApiError, match="IDs are 0 to"):
        answer_body(model, COMPLETION, {"prompt": [5, last + 1]})


@pytest.mark.parametrize(("path", "body"), [(CHAT, HI), (COMPLETION, {"prompt": "Once upon a"})])
def test_truncation_cuts_token_ids(path: str, body: dict[str, Any], model: LoadedModel) -> None:
    whole = ids(model, path, body)
    assert ids(model, path, {**body, "truncate_prompt_tokens": 2}) == whole[-2:]
    right = {**body, "truncate_prompt_tokens": 2, "truncation_side": "right"}
    assert ids(model, path, right) == whole[:2]


def test_truncation_beside_an_image(model: LoadedModel) -> None:
    assert ids(model, CHAT, WITH_IMAGE)
    with pytest.raises(ApiError, match="refused with images"):
        answer_body(model, CHAT, {**WITH_IMAGE, "truncate_prompt_tokens": 1000})


def test_truncation_cuts_what_the_tokenizer_adds(model: LoadedModel) -> None:
    plain = ids(model, COMPLETION, {"prompt": "Once upon a", "add_special_tokens": False})
    whole = ids(model, COMPLETION, {"prompt": "Once upon a"})
    assert len(whole) > len(plain)
    cut = {"prompt": "Once upon a", "truncate_prompt_tokens": len(plain)}
    assert ids(model, COMPLETION, cut) == plain


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {}},
        {"response_format": "text"},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        {"truncate_prompt_tokens": 1000, **WITH_IMAGE},
    ],
)
def test_request_lines_are_refused_like_bodies(more: dict[str, Any], model: LoadedModel) -> None:
    assert not model.normalizer.answer(request_of({**HI, **more})).exact


# Whether a running engine behind the frontend (0.32.0) looked for tokens that it held.
@pytest.mark.parametrize(
    ("path", "body", "reads"),
    [
        (CHAT, HI, True),
        (CHAT, {**HI, "prompt_logprobs": 0}, False),
        (CHAT, {**HI, "echo": True}, False),
        (CHAT, {**HI, "echo": True, "top_logprobs": None}, False),
        (CHAT, {**HI, "echo": True, "logprobs": True, "top_logprobs": 2}, False),
        (COMPLETION, {"prompt": "Hi", "prompt_logprobs": 0}, False),
        (COMPLETION, {"prompt": "Hi", "echo": True}, True),
        (COMPLETION, {"prompt": "Hi", "echo": True, "logprobs": 0}, False),
    ],
)
def test_what_asks_for_scores_of_the_prompt_reads_no_cache(
    model: LoadedModel, path: str, body: dict[str, Any], reads: bool
) -> None:
    (routing,) = answer_body(model, path, body).routings
    assert routing.reads_cache is reads


SALTED = {**HI, "cache_salt": "a b/c"}


@pytest.mark.parametrize(
    ("version", "path", "body", "status"),
    [
        ("0.33.0", COMPLETION, {"prompt": ""}, 422),
        ("0.32.0", COMPLETION, {"prompt": ""}, 422),
        ("0.32.0", CHAT, SALTED, 422),
        ("0.32.0", COMPLETION, {"prompt": "Hi", "cache_salt": "a" * 200}, 422),
        ("0.33.0", CHAT, SALTED, 400),
    ],
)
def test_what_only_the_python_frontend_is_known_to_refuse(
    model: LoadedModel, version: str, path: str, body: dict[str, Any], status: int
) -> None:
    settings = RustSettings()
    normalizer = Normalizer.from_pretrained(
        model.model.name, backend=f"vllm=={version}", model_id="llava", engine_settings=settings
    )
    with pytest.raises(ApiError) as refused:
        answer_body(LoadedModel.of(normalizer, "m"), path, body)
    assert refused.value.status == status
