"""One normalization for workers of several engines, versions and model strings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from image_vectors import image_files

from mmroute import ImageSize, InexactError, Normalizer, Routing, read_image
from mmroute.cli import main
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import Reason

QWEN = "small-qwen2.5-vl"
FILES = image_files()
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("vllm==0.32", {}),
    ("vllm==0.28", {"model_id": "/models/qwen"}),
    ("vllm==0.23", {}),
    ("vllm==0.15", {}),
    ("vllm", {"model_id": "another/name"}),
    ("vllm", {"engine_settings": VllmSettings(model="third/name", block_size=32)}),
    ("vllm", {"engine_settings": VllmSettings(content_format="string")}),
    ("sglang", {}),
]


def asked(name: str) -> dict[str, Any]:
    text = {"type": "text", "text": "What is this? " * 9}
    image = {"type": "image", "uuid": "00000000deadbeef"} if name == "named" else {"type": "image"}
    file = read_image(FILES["jpeg" if name == "named" else name])
    return {"messages": [{"role": "user", "content": [image, text]}], "images": [file]}


def hashes_of(routing: Routing) -> list[str] | str:
    try:
        return routing.hashes(block_size=16, seed="0").hex()
    except InexactError as inexact:
        return inexact.reason


@pytest.mark.parametrize(("backend", "more"), OTHERS)
def test_hashes_are_those_of_a_normalizer_of_its_own(
    small_model: Callable[[str], Path], backend: str, more: dict[str, Any]
) -> None:
    model = small_model(QWEN)
    first = Normalizer.from_pretrained(model, model_id="org/model")
    matching = first.matching(backend, **more)
    default = {"model_id": "org/model"} if "engine_settings" not in more else {}
    own = Normalizer.from_pretrained(model, backend=backend, **{**default, **more})
    for name in ("named", "jpeg", "png-rgba", "png-rgb-trns", "jpeg-exif-6"):
        expected = hashes_of(own.normalize(**asked(name)))
        _, routing = first.normalize_with(matching, **asked(name))
        assert hashes_of(routing) == expected, name


def test_a_version_for_which_the_family_says_something_else_has_its_own_answer(
    normalizer: Callable[[str], Normalizer],
) -> None:
    first = normalizer("small-deepseek-v4")
    alike, older = first.matching("vllm==0.32"), first.matching("vllm==0.30")
    hi = [{"role": "user", "content": "Hi"}]
    routing, same, refused = first.normalize_with(alike, older, messages=hi)
    assert same.unexpanded_token_ids is routing.unexpanded_token_ids
    assert refused.reason == Reason.CHAT_RENDERER_UNSUPPORTED


@pytest.mark.parametrize(("name", "shared"), [("jpeg", True), ("jpeg-exif-6", False)])
def test_the_prompt_is_computed_once_where_it_is_the_same(
    small_model: Callable[[str], Path], name: str, *, shared: bool
) -> None:
    first = Normalizer.from_pretrained(small_model(QWEN))
    older = first.matching("vllm==0.28"), first.matching("vllm==0.23")
    routing, upright, as_stored = first.normalize_with(*older, **asked(name))
    assert upright.unexpanded_token_ids is routing.unexpanded_token_ids
    assert (as_stored.unexpanded_token_ids is routing.unexpanded_token_ids) == shared
    # A picture that is turned in one engine only has the tokens of another size there.
    stored = {**asked(name), "images": [ImageSize(93, 31) if shared else ImageSize(86, 24)]}
    assert as_stored.token_ids.tolist() == first.normalize(**stored).token_ids.tolist()


@pytest.mark.parametrize("backend", ["vllm==0.28", "sglang"])
def test_a_normalizer_made_of_a_resolved_model_has_matching_ones(
    small_model: Callable[[str], Path], backend: str
) -> None:
    first = Normalizer.from_pretrained(small_model(QWEN), model_id="org/model")
    made = Normalizer(first.model)
    expected, found = (
        normalizer.normalize_with(normalizer.matching(backend), **asked("named"))
        for normalizer in (first, made)
    )
    assert list(map(hashes_of, found)) == list(map(hashes_of, expected))


def test_each_worker_refuses_for_itself(small_model: Callable[[str], Path]) -> None:
    first = Normalizer.from_pretrained(small_model(QWEN))
    sglang = first.matching("sglang")
    part = {"type": "input_text", "text": "Hi"}  # of which SGLang knows nothing
    taken, refused = first.normalize_with(
        sglang, messages=[{"role": "user", "content": [part, {"type": "text", "text": "Ho"}]}]
    )
    assert taken.exact
    assert not refused.exact


def test_a_line_is_answered_for_every_backend(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    prompt = "<|vision_start|><|image_pad|><|vision_end|>" + "What is this? " * 9
    image = {"width": 64, "height": 48, "uuid": "00000000deadbeef"}
    lines = [
        {"id": "both", "prompt": prompt, "images": [image]},
        {"id": "one", "prompt": prompt, "images": [{"width": 64, "height": 48}]},
        {"id": "none", "prompt": prompt},
    ]
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    options = ["--input", str(requests), "--output", str(answers), "--block-size", "16"]
    model = str(small_model(QWEN))
    names = ("vllm", "vllm==0.28", "sglang")
    backends = [option for name in names for option in ("--backend", name)]
    assert main(["blocks", model, *backends, "--hash-seed", "0", *options]) == 0
    both, one, none = map(json.loads, answers.read_text().splitlines())
    assert list(both["backends"]) == [*names]
    for name in names:
        assert main(["blocks", model, "--backend", name, "--hash-seed", "0", *options]) == 0
        alone = json.loads(answers.read_text().splitlines()[0])
        assert both["backends"][name] == {k: v for k, v in alone.items() if k != "id"}
    unnamed = {"exact": False, "reason": "image_identity_unknown"}
    assert all(found.items() >= unnamed.items() for found in one["backends"].values())
    assert none["exact"]


@pytest.mark.parametrize("started", ["vllm serve --block-size 32", "sglang serve --page-size 32"])
def test_each_backend_gets_only_settings_of_its_own(
    started: str, small_model: Callable[[str], Path]
) -> None:
    first = started.partition(" ")[0]
    other = {"vllm": "sglang", "sglang": "vllm"}[first]
    backends = ["--backend", first, "--backend", other]
    options = [*backends, "--engine-args", started, "--hash-seed", "0"]
    line = json.dumps({"prompt": "What is this? " * 40})
    done = run("blocks", str(small_model(QWEN)), *options, stdin=line)
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["backends"][first]["block_hashes"]
    alone = run("blocks", str(small_model(QWEN)), *options[:2], *options[4:], stdin=line)
    assert found == json.loads(alone.stdout)["block_hashes"]
