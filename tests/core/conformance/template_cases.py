"""Directories with two chat templates, or another processor class: what `generate_templates` asks.

Each place of a template has a text of its own, which says where it stands.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

JSON, PROCESSOR, JINJA, TOKENIZER = (
    "chat_template.json", "processor_config.json", "chat_template.jinja", "tokenizer_config.json",
)  # fmt: skip
_IMAGE: Final = "preprocessor_config.json"
_NAMED: Final = "additional_chat_templates"
_DEFAULT, _TOOLS = f"{_NAMED}/default.jinja", f"{_NAMED}/tool_use.jinja"
_PLACES: Final = (JSON, PROCESSOR, JINJA, TOKENIZER)
Files = dict[str, Any]
EVERY: Final = ("small-qwen3-vl", "small-step-3-vl")
"""Models that are asked about all pairs: one with a processor, and one without."""


def text_of(place: str) -> str:
    """The template of a place, which is the text that it renders."""
    return f"From {place}."


def _list(place: str, *names: str) -> list[dict[str, str]]:
    return [{"name": name, "template": text_of(f"{place}, {name}")} for name in names]


_FORMS: Final[Mapping[str, tuple[tuple[str, Any], ...]]] = {
    JSON: (("empty", ""), ("null", None), ("list", _list(JSON, "default"))),
    PROCESSOR: (("empty", ""), ("null", None), ("list", _list(PROCESSOR, "default"))),
    JINJA: (("empty", ""),),
    TOKENIZER: (
        ("empty", ""), ("null", None), ("list", _list(TOKENIZER, "default")),
        ("two", _list(TOKENIZER, "default", "tool_use")), ("tools", _list(TOKENIZER, "tool_use")),
    ),
}  # fmt: skip


def directories(files: Files, *, every: bool) -> Iterator[tuple[str, Files]]:
    """The name and files of each directory, made of a model's own.

    Args:
        files: the model's files.
        every: whether to give all pairs of places in all forms. Which file comes first does not
            depend on the family, but for whether there is a processor.
    """
    bare = _without_templates(files)
    yield "none", bare
    places = (*_PLACES, _DEFAULT, _TOOLS) if every else _PLACES[:1]
    for place in places:
        yield place, _with(bare, place, text_of(place))
    pairs = itertools.combinations((*_PLACES, _DEFAULT, _TOOLS), 2)
    for one, other in pairs if every else ((place, TOKENIZER) for place in (JSON, PROCESSOR)):
        yield f"{one} + {other}", _with(_with(bare, one, text_of(one)), other, text_of(other))
    for place, forms in _FORMS.items() if every else ():
        for (form, value), other in itertools.product(forms, _PLACES):
            if other != place:
                beside = _with(bare, other, text_of(other))
                yield f"{place} {form} + {other}", _with(beside, place, value)
    both = _with(_with(bare, JSON, text_of(JSON)), TOKENIZER, text_of(TOKENIZER))
    yield "class nowhere", _without_class(both, PROCESSOR, _IMAGE, TOKENIZER)
    for file in (PROCESSOR, _IMAGE, TOKENIZER):
        own = both.get(file, {}).get("processor_class")
        others: tuple[Any, ...] = ("LlavaProcessor", "Qwen2VLProcessor", "OtherProcessor", None)
        if own is not None:
            yield f"class not in {file}", _without_class(both, file)
            others = (f"{own}Fast", *others)
        for name in others if every or own is not None or file == PROCESSOR else ():
            content = {**both.get(file, {}), "processor_class": name}
            told = "Fast" if own is not None and name == others[0] else name
            yield f"class {told} in {file}", {**both, file: content}


def _without_templates(files: Files) -> Files:
    bare = {
        name: copy.deepcopy(content)
        for name, content in files.items()
        if name not in (JSON, JINJA) and not name.startswith(_NAMED)
    }
    for name in (PROCESSOR, TOKENIZER):
        if name in bare:
            bare[name].pop("chat_template", None)
    return bare


def _without_class(files: Files, *names: str) -> Files:
    return files | {
        name: {key: value for key, value in files[name].items() if key != "processor_class"}
        for name in names
        if name in files
    }


def _with(files: Files, place: str, value: Any) -> Files:
    if place.endswith(".jinja"):
        return {**files, place: value}
    return {**files, place: {**files.get(place, {}), "chat_template": value}}
