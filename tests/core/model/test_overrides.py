"""Overrides of requests, templates that no file has, and the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from small_models import Files

from mmroute import Normalizer
from mmroute.errors import InexactError
from mmroute.geometry import Geometry, Overrides
from mmroute.model.garbage import not_searched
from mmroute.model.resolve import resolve_model
from mmroute.requests.items import Modality


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    found = not_searched()(gc.isenabled)()
    assert not found
    assert gc.isenabled() is enabled


def test_it_is_so_after_an_error() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), not_searched():
        _ = 1 / 0
    assert gc.isenabled()


def test_what_was_made_is_not_walked_again() -> None:
    with not_searched():
        made: list[list[int]] = [[]]
    assert not any(found is made for found in gc.get_objects())


@pytest.fixture
def overridden(small_model: Callable[[str], Path]) -> Callable[..., Geometry]:
    """The image geometry of a small Qwen2.5-VL under ``mm_processor_kwargs``."""
    model = resolve_model(str(small_model("small-qwen2.5-vl")))

    def under(**kwargs: Any) -> Geometry:
        return model.media[Modality.IMAGE].overridden(Overrides(kwargs, {}))

    return under


def test_same_overrides_have_one_geometry(overridden: Callable[..., Geometry]) -> None:
    assert overridden(max_pixels=501760) is overridden(max_pixels=501760)
    assert overridden(max_pixels=501760) != overridden(max_pixels=401408)


@pytest.mark.parametrize("alike", [True, 1.0])
def test_equal_values_of_other_types_are_others(
    overridden: Callable[..., Geometry], alike: object
) -> None:
    overridden(images_kwargs={"patch_size": 1})
    with pytest.raises(InexactError):
        overridden(images_kwargs={"patch_size": alike})


def test_what_is_not_kept_counts_alike(overridden: Callable[..., Geometry]) -> None:
    empty = MappingProxyType[str, Any]({})
    assert overridden(max_pixels=501760, images_kwargs=empty) == overridden(max_pixels=501760)
    with pytest.raises(InexactError):
        overridden(made_up="long" * 1000)


ASKED = [{"role": "user", "content": "Hello"}]
CHATML = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def without_templates(files: Files) -> None:
    files.pop("chat_template.jinja")


@pytest.mark.parametrize(
    ("model", "model_string", "text"),
    [
        ("small-minicpm-v-2.6", "openbmb/MiniCPM-V-2_6", CHATML),
        ("small-minicpm-v-4.6", "openbmb/MiniCPM-V-4.6", CHATML),
        ("small-minicpm-v-4.5", "openbmb/MiniCPM-V-4_5", f"{CHATML}<think>\n\n</think>\n\n"),
        ("small-minicpm-v-2.6", "finetuned-4.5", f"{CHATML}<think>\n\n</think>\n\n"),
    ],
)
def test_engine_chooses_by_the_model_string(
    model: str, model_string: str, text: str, changed_model: Callable[..., Path]
) -> None:
    directory = changed_model(model, without_templates)
    normalizer = Normalizer.from_pretrained(directory, model_id=model_string)
    routing = normalizer.normalize(messages=ASKED)
    assert routing.exact, routing.message
    wanted = normalizer.model.tokenizer.encode(text, add_special_tokens=False)
    assert routing.token_ids.tolist() == wanted.tolist()


@pytest.mark.parametrize("names", [["default"], ["default", "tool_use"]])
def test_hunyuan_renders_no_chat_with_a_list_of_templates(
    names: list[str], changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0: TypeError, as its processor takes the list for a text; with tools none is."""

    def change(files: Files) -> None:
        del files["chat_template.jinja"]
        listed = [{"name": name, "template": f"From {name}."} for name in names]
        files["tokenizer_config.json"]["chat_template"] = listed

    model = Normalizer.from_pretrained(changed_model("small-hunyuan-vl", change))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert not model.normalize(messages=ASKED).exact
    assert model.normalize(messages=ASKED, tools=[tool]).exact
