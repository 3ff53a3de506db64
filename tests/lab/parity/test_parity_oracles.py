"""What `mmroute validate` compares with: vectors, and libraries that are installed."""

from __future__ import annotations

import base64
import builtins
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle_helpers import IMAGE, META, MODEL, SIZE, case, text, undecided, user
from paths import VECTORS
from PIL import Image
from scripted_server import ScriptedServer

from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.lab.parity.cases import Case, Oracle, UndecidedError
from mmroute.lab.parity.comparison import difference
from mmroute.lab.parity.oracles import OracleError, find_oracle
from mmroute.lab.parity.oracles.http import HttpOracle
from mmroute.lab.parity.oracles.pictures import (
    data_url,
    has_media,
    pictures,
    split_pictures,
    with_pictures,
)
from mmroute.lab.parity.oracles.transformers import TransformersOracle
from mmroute.lab.parity.oracles.vectors import VectorsOracle
from mmroute.model_directory import find_model

# Pictures


def decoded(url: str) -> Image.Image:
    head, _, content = url.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(content, validate=True)))


def test_a_picture_has_the_size_that_was_asked_for() -> None:
    assert decoded(data_url(40, 30)).size == (40, 30)
    assert [p.size for p in pictures([SIZE, {"width": 1, "height": 7}])] == [(40, 30), (1, 7)]
    assert pictures(None) == []


def test_pictures_are_made_once() -> None:
    assert data_url(41, 31) is data_url(41, 31)
    assert pictures([SIZE])[0] is pictures([SIZE])[0]


def test_messages_take_sizes_in_order() -> None:
    own = data_url(5, 6)
    link = {"type": "image_url", "image_url": {"url": "https://example.com/x.png", "detail": "low"}}
    messages = [
        {"role": "system", "content": "s"},
        *user(IMAGE, text("t"), {"type": "image_url", "image_url": {"url": own}}),
        *user(link),
    ]
    before = json.dumps(messages)
    found = with_pictures(messages, [SIZE, {"width": 8, "height": 9, "uuid": "u"}])
    assert json.dumps(messages) == before
    assert found[0] == messages[0]
    first, words, second = found[1]["content"]
    assert decoded(first["image_url"]["url"]).size == (40, 30)
    assert (words, second["image_url"]["url"]) == (text("t"), own)
    (third,) = found[2]["content"]
    assert decoded(third["image_url"]["url"]).size == (8, 9)
    assert third["image_url"]["detail"] == "low"


def test_the_clients_uuid_is_not_given_to_a_made_up_picture() -> None:
    (message,) = with_pictures(user({**IMAGE, "uuid": "u"}), [{**SIZE, "uuid": "u"}])
    assert "uuid" not in json.dumps(message)


@pytest.mark.parametrize(
    ("messages", "images", "why"),
    [
        (user(IMAGE), [], "more image parts"),
        (user(text("x")), [SIZE], "more sizes"),
        (user(IMAGE), [{"width": 4}], "images[0] must have width and height"),
        (user(IMAGE), [{"width": True, "height": 1}], "images[0] must have width and height"),
        (user(IMAGE), [3], "images[0] must have width and height"),
        (user(IMAGE), 3, "must be a list"),
        (user(IMAGE), [{"width": 2501, "height": 1}], "of an aspect above 2500"),
        (user(IMAGE), [{"width": 100_000, "height": 100_000}], "no picture of more than"),
        (user({"type": "video_url", "video_url": {"url": "https://x"}}), [], "not followed"),
    ],
)
def test_what_no_picture_can_be_made_for(messages: Any, images: Any, why: str) -> None:
    with pytest.raises(UndecidedError) as caught:
        with_pictures(messages, images)
    assert why in str(caught.value)


@pytest.mark.parametrize("messages", [None, 3, "text", [3], [{"content": 3}], user(3), user({})])
def test_malformed_messages_are_left_to_the_engine(messages: Any) -> None:
    assert with_pictures(messages, None) == messages
    assert not has_media(messages)


def test_pictures_are_split_from_messages() -> None:
    filled = with_pictures(user(text("a"), IMAGE), [SIZE])
    assert has_media(filled)
    assert split_pictures(filled) == (user(text("a"), IMAGE), [data_url(40, 30)])


# Vectors


def vector_file(path: Path, *lines: Any) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
    return path


def test_vectors_give_cases_and_answer_them(tmp_path: Path) -> None:
    answered = {
        "id": "a", "messages": user(IMAGE), "images": [SIZE], "tags": ["rounding", "thin"],
        "expect": {"token_runs": [[7, 1], [9, 3]], "n_tokens": 4,
                   "placeholders": [{"offset": 1, "length": 3, "embed_runs": [[1, 1], [1, 2]]}]},
    }  # fmt: skip
    refused = {"id": "b", "prompt": "p", "expect": {"refused": "ValueError: no"}}
    oracle = VectorsOracle(vector_file(tmp_path / "v.jsonl", META, answered, "", refused))
    assert (oracle.name, oracle.version) == ("v.jsonl", "vllm 0.33.0")
    first, second = oracle.cases()
    assert first == Case("a", "rounding", {"messages": user(IMAGE), "images": [SIZE]})
    assert (second.id, second.kind) == ("b", "untagged")
    answer = oracle.answer(first)
    assert answer.token_ids is not None
    assert answer.token_ids.tolist() == [7, 9, 9, 9]
    assert answer.ranges == ((1, 3),)
    assert answer.features == (((True, 3),),)
    assert oracle.answer(second).refusal == "ValueError: no"


def test_vectors_answer_only_their_own_requests(tmp_path: Path) -> None:
    line = {"id": "a", "prompt": "p", "expect": {"refused": "no"}}
    oracle = VectorsOracle(vector_file(tmp_path / "v.jsonl", META, line))
    for name, prompt in (("other", "p"), ("a", "q")):
        with pytest.raises(UndecidedError, match="no such request"):
            oracle.answer(Case(name, "untagged", {"prompt": prompt}))


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([], "has no request"),
        (['{"kind"'], "line 1: the line is not JSON"),
        ([[]], "line 1: the line must be a JSON object"),
        ([{**META, "kind": "other"}], "$.kind"),
        ([META, {"id": "a", "prompt": "p"}], "line 2: Object missing required field `expect`"),
        ([META, {"id": "a", "expect": {}}], "line 2: must have exactly one"),
        ([META, {"id": "a", "expect": {"token_runs": [[-1, 1]]}}], "$.expect.token_runs[0]"),
        (
            [META, {"id": "a", "expect": {"token_runs": [], "placeholders": [{"offset": 1}]}}],
            "$.expect.placeholders[0]",
        ),
        ([META, *[{"id": "a", "expect": {"refused": "x"}}] * 2], "line 3: id: 'a' occurs twice"),
    ],
)
def test_malformed_vectors_are_named(tmp_path: Path, lines: list[Any], where: str) -> None:
    path = vector_file(tmp_path / "v.jsonl", *lines)
    with pytest.raises(MmrouteError) as caught:
        VectorsOracle(path)
    assert caught.value.reason is Reason.MALFORMED_FILE
    assert str(path) in str(caught.value)
    assert where in str(caught.value)


# transformers


@pytest.fixture
def transformers_of(small_model: Callable[[str], Path]) -> Callable[[str], Oracle]:
    return lambda name: find_oracle("transformers", str(small_model(name)))


# Models whose processors load without torchvision -> cases of the table in docs/new-model.md. The
# small Gemma has no token for more than four line breaks, and merges them in another way.
DIFFERING = {
    "small-llava-1.5": {"billing-header"},
    "small-llava-next": {"billing-header", "many-images"},
    "small-gemma-3": {
        "billing-header", "text-5-around", "adjacent", "many-images", "prompt-glued-True",
        "prompt-glued-False", "prompt-reversed-True", "prompt-reversed-False",
    },
}  # fmt: skip


def is_thin(image: dict[str, int]) -> bool:
    sides = sorted((image["width"], image["height"]))
    return sides[0] * 200 < sides[1]


@pytest.mark.conformance
@pytest.mark.parametrize("name", DIFFERING)
def test_processors_differ_from_the_engine_where_they_are_known_to(
    small_model: Callable[[str], Path], name: str
) -> None:
    oracle = find_oracle("transformers", str(small_model(name)))
    vectors = VectorsOracle(VECTORS / f"{name}.jsonl")
    same, differing = 0, set()
    for asked in vectors.cases():
        if any(is_thin(image) for image in asked.request.get("images", [])):
            continue  # right as well, but it takes LLaVA's processor seconds
        with contextlib.suppress(UndecidedError):
            if not difference(vectors.answer(asked), oracle.answer(asked)):
                same += 1
            else:
                differing.add(asked.id)
    assert differing == DIFFERING[name]
    assert same > 70


def test_processor_leaves_undecided(transformers_of: Callable[[str], Oracle]) -> None:
    oracle = transformers_of("small-llava-1.5")
    for request, why in (
        ({"prompt_token_ids": [1]}, "not token IDs"),
        ({"messages": user(text("x")), "tools": [{}]}, "tools"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role 'tool'"),
        ({"messages": user({"type": "refusal", "refusal": "x"})}, "neither text nor image"),
        ({"prompt": "<image> <image>", "images": [SIZE]}, "2 placeholders for 1 images"),
        ({"messages": user(IMAGE)}, "more image parts"),
        ({"messages": user(text("x")), "chat_template_kwargs": {"chat_template": ""}}, "template"),
        ({"prompt": "x", "mm_processor_kwargs": {"text": "y"}}, "sets text"),
    ):
        assert why in undecided(oracle, case(**request))


def test_processor_refuses(transformers_of: Callable[[str], Oracle]) -> None:
    oracle = transformers_of("small-llava-1.5")
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for request in (
        {"messages": user(broken)},
        {"messages": user(text("x")), "continue_final_message": True},
    ):
        answer = oracle.answer(case(**request))
        assert answer.token_ids is None
        assert answer.refusal


def test_processor_that_needs_remote_code(transformers_of: Callable[[str], Oracle]) -> None:
    with pytest.raises(OracleError, match="cannot be loaded"):
        transformers_of("small-phi-3-vision")


def test_no_processor_reads_mistrals_format() -> None:
    with pytest.raises(OracleError, match="Mistral's format: --against vllm"):
        find_oracle("transformers", MODEL)


# Finding one


@pytest.fixture
def without_import(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def hide(name: str) -> None:
        real = builtins.__import__

        def find(module: str, *rest: Any, **more: Any) -> Any:
            if module.split(".", maxsplit=1)[0] == name:
                raise ImportError(f"No module named {name!r}")
            return real(module, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", find)

    return hide


def test_missing_packages(
    without_import: Callable[[str], None], small_model: Callable[[str], Path]
) -> None:
    files = find_model(str(small_model("small-llava-1.5")))
    without_import("transformers")
    with pytest.raises(OracleError, match=r"pip install '\.\[validate\]'"):
        TransformersOracle(files)
    without_import("vllm")
    with pytest.raises(OracleError, match="vLLM cannot be imported here"):
        find_oracle("vllm", files.name)


@pytest.mark.process
def test_oracles_by_url_and_path(server: ScriptedServer, tmp_path: Path) -> None:
    assert isinstance(find_oracle(server.url, MODEL), HttpOracle)
    path = vector_file(tmp_path / "v.jsonl", META)
    assert isinstance(find_oracle(str(path), MODEL), VectorsOracle)


@pytest.mark.parametrize(
    ("against", "why"),
    [
        ("vlm", "did you mean 'vllm'?"),
        ("VLLM", "did you mean 'vllm'?"),
        ("localhost:8000", "did you mean 'http://localhost:8000'?"),
        ("Transformer", "did you mean 'transformers'?"),
        ("llama", "An oracle is vllm, transformers, the URL"),
        ("nowhere.jsonl", "there is no file nowhere.jsonl"),
        ("", "An oracle is"),
    ],
)
def test_no_such_oracle(against: str, why: str) -> None:
    with pytest.raises(OracleError) as caught:
        find_oracle(against, MODEL)
    assert why in str(caught.value)


def test_an_unknown_model() -> None:
    with pytest.raises(ModelError):
        find_oracle("vllm", "./nowhere")
