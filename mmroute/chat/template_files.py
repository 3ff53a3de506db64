"""Reads the chat templates in a model's files as transformers does.

Source: transformers ``processing_utils.py`` and ``tokenization_utils_base.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from mmroute.errors import ModelError, Reason, json_type
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles

_NAMED: Final = "additional_chat_templates/"
_JINJA: Final = "chat_template.jinja"
_LEGACY: Final = "chat_template.json"
_CONFIG: Final = "tokenizer_config.json"
_OF_PROCESSOR: Final = ("processor_config.json", _LEGACY)
_FIELD: Final = "chat_template"
DEFAULT: Final = "default"
"""The name of the template that is taken if a request names none."""
Source: TypeAlias = tuple[str, str]
"""The text of a template, and the file (and field) that it comes from."""


def default_template(files: ModelFiles) -> Source | None:
    """The template that transformers' processor applies, or else its tokenizer."""
    return processor_templates(files).get(DEFAULT) or tokenizer_templates(files).get(DEFAULT)


def check_one_template(files: ModelFiles) -> None:
    """Refuse a model with named templates, for engines whose choice among them is not known."""
    if named := _named_files(files):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name}: several named chat templates are not covered here: "
            f"{', '.join(named)}. Give a directory with one template.",
        )


def _named_files(files: ModelFiles) -> list[str]:
    return [name for name in files.names() if name.startswith(_NAMED)]


def tokenizer_templates(files: ModelFiles) -> dict[str, Source]:
    """The templates of the tokenizer, by name."""
    # A tokenizer reads the named files last, a processor first: each may be called `default`.
    named = {Path(name).stem: (files.text(name), name) for name in _named_files(files)}
    sources = _of_jinja(files) | named
    return sources or _of_configuration(files)  # any file hides what the configuration has


def _of_jinja(files: ModelFiles) -> dict[str, Source]:
    return {DEFAULT: (files.text(_JINJA), _JINJA)} if files.has(_JINJA) else {}


def _of_configuration(files: ModelFiles) -> dict[str, Source]:
    value = files.object(_CONFIG).get(_FIELD)
    origin = f"{_CONFIG}:{_FIELD}"
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: (value, origin)}
    found = {}
    for entry in value if isinstance(value, list) else ():
        given = entry if isinstance(entry, dict) else {}
        name, text = given.get("name"), given.get("template")
        if isinstance(name, str) and isinstance(text, str):
            found[name] = text, f"{origin}.{name}"
    if not found:
        raise _not_one(files, _CONFIG, value)
    return found


def processor_templates(files: ModelFiles) -> dict[str, Source]:
    """The templates of the processor, by name."""
    named = _named_files(files)
    if named and files.has(_LEGACY):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name} has {_LEGACY} beside {', '.join(named)}, with which the engine does not "
            f"start. Give the template of {_LEGACY} as {_JINJA}.",
        )
    for file in _OF_PROCESSOR:
        value = files.object(file).get(_FIELD)
        if file == _LEGACY and (value == "" or files.has_null(FieldRef(file, (_FIELD,)))):
            return {}  # no template, and chat_template.jinja is then the tokenizer's alone
        if isinstance(value, str):
            return {DEFAULT: (value, f"{file}:{_FIELD}")}
        if value is not None:
            raise _not_one(files, file, value)
    return {Path(name).stem: (files.text(name), name) for name in named} | _of_jinja(files)


def has_listed_template(files: ModelFiles) -> bool:
    """Whether the processor has a list in place of a template, with which it renders no chat."""
    values = (files.object(file).get(_FIELD) for file in _OF_PROCESSOR)
    return isinstance(next((value for value in values if value is not None), None), list)


def _not_one(files: ModelFiles, file: str, value: JsonValue) -> ModelError:
    return ModelError(
        Reason.INVALID_CONFIG_FIELD,
        f"{files.path(file)}: {_FIELD} must be a template, found {json_type(value)}.",
    )
