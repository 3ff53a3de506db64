"""Which file a model's chat template is in.

Source: vLLM ``renderers/hf.py`` (precedence); transformers ``processing_utils.py``
and ``tokenization_utils_base.py`` (files).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from mmroute.chat.template import ChatTemplate
from mmroute.errors import ModelError, Reason
from mmroute.model_directory import JsonValue, ModelFiles

_NAMED: Final = "additional_chat_templates/"
_JINJA: Final = "chat_template.jinja"
_LEGACY: Final = "chat_template.json"
_CONFIG: Final = "tokenizer_config.json"
_FIELD: Final = "chat_template"
_DEFAULT: Final = "default"
_Source: TypeAlias = tuple[str, str]  # of a template, and the file (and field) it comes from


def chat_templates(
    files: ModelFiles, fallback: str | None = None, *, processor: bool = True
) -> tuple[ChatTemplate | None, ChatTemplate | None]:
    """The template of requests without tools, and of those with tools.

    The engine takes the processor's first, but only without tools; else the tokenizer's; else its
    own. A tokenizer with several has ``tool_use`` for tools, and ``default``; the others are never
    asked for. A processor with several has none for the engine, which fails on such requests.

    Args:
        files: the model's files.
        fallback: the engine's own template for the family.
        processor: whether the engine has a processor for it, which models of text have not.

    Raises:
        ModelError: `malformed_file`; `invalid_config_field` for what is no template, and for named
            templates beside a chat_template.json, with which no processor is loaded.
    """
    named = _named_files(files)
    own = _of_tokenizer(files, named)
    if not own and fallback is not None:
        own[_DEFAULT] = fallback, "the engine's own template"
    default = own.get(_DEFAULT)
    templates = _of_processor(files, named) if processor else {}
    several = bool(templates.keys() - {_DEFAULT})
    first = None if several else templates.get(_DEFAULT, default)
    with_tools = own.get("tool_use", default)
    template = None if first is None else ChatTemplate.compile(*first)
    if with_tools is None:
        return template, None
    source, origin = with_tools
    if template is not None and template.source == source:
        return template, replace(template, origin=origin)
    return template, ChatTemplate.compile(source, origin)


def check_one_template(files: ModelFiles) -> None:
    """Refuse a model with named templates, for engines of which it is not known what they take.

    Raises:
        ModelError: `invalid_config_field`.
    """
    if named := _named_files(files):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name}: several named chat templates are not covered here: "
            f"{', '.join(named)}. Give a directory with one template.",
        )


def _named_files(files: ModelFiles) -> list[str]:
    return [name for name in files.names() if name.startswith(_NAMED)]


def _of_tokenizer(files: ModelFiles, named: list[str]) -> dict[str, _Source]:
    # A tokenizer reads the named files last, a processor first: each may be called `default`.
    sources = _of_jinja(files) | {Path(name).stem: (files.text(name), name) for name in named}
    return sources or _of_configuration(files)  # any file hides what the configuration has


def _of_jinja(files: ModelFiles) -> dict[str, _Source]:
    return {_DEFAULT: (files.text(_JINJA), _JINJA)} if files.has(_JINJA) else {}


def _of_configuration(files: ModelFiles) -> dict[str, _Source]:
    value = files.object(_CONFIG).get(_FIELD)
    origin = f"{_CONFIG}:{_FIELD}"
    if value is None:
        return {}
    if isinstance(value, str):
        return {_DEFAULT: (value, origin)}
    found = {}
    for entry in value if isinstance(value, list) else ():
        given = entry if isinstance(entry, dict) else {}
        name, text = given.get("name"), given.get("template")
        if isinstance(name, str) and isinstance(text, str):
            found[name] = text, f"{origin}.{name}"
    if not found:
        raise _not_one(files, _CONFIG, value)
    return found


def _of_processor(files: ModelFiles, named: list[str]) -> dict[str, _Source]:
    if named and files.has(_LEGACY):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name} has {_LEGACY} beside {', '.join(named)}, with which the engine does not "
            f"start. Give the template of {_LEGACY} as {_JINJA}.",
        )
    for file in ("processor_config.json", _LEGACY):
        value = files.object(file).get(_FIELD)
        if isinstance(value, str):
            return {_DEFAULT: (value, f"{file}:{_FIELD}")}
        if value is not None:
            raise _not_one(files, file, value)
    return {Path(name).stem: (files.text(name), name) for name in named} | _of_jinja(files)


def _not_one(files: ModelFiles, file: str, value: JsonValue) -> ModelError:
    return ModelError(
        Reason.INVALID_CONFIG_FIELD,
        f"{files.path(file)}: {_FIELD} must be a template, found {type(value).__name__}.",
    )
