"""Which file a model's chat template is in.

Source: vLLM 0.33.0 ``renderers/hf.py`` (precedence); transformers 5.20.2 ``processing_utils.py``
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
    asked for.

    Args:
        files: of the model.
        fallback: the engine's own template for the family.
        processor: whether the engine has a processor for it, which models of text have not.

    Raises:
        ModelError: `malformed_file`; `invalid_config_field` for what is no template, and for named
            templates of a processor.
    """
    named = [name for name in files.names() if name.startswith(_NAMED)]
    if processor and named:
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name}: several named chat templates of a processor are not supported: "
            f"{', '.join(named)}. Give a directory with one template.",
        )
    own = _of_tokenizer(files, named)
    if not own and fallback is not None:
        own[_DEFAULT] = fallback, "the engine's own template"
    default = own.get(_DEFAULT)
    first = (_of_processor(files) if processor else None) or default
    with_tools = own.get("tool_use", default)
    template = None if first is None else ChatTemplate.compile(*first)
    if with_tools is None:
        return template, None
    source, origin = with_tools
    if template is not None and template.source == source:
        return template, replace(template, origin=origin)
    return template, ChatTemplate.compile(source, origin)


def _of_tokenizer(files: ModelFiles, named: list[str]) -> dict[str, _Source]:
    sources = {Path(name).stem: (files.text(name), name) for name in named}
    if files.has(_JINJA):
        sources[_DEFAULT] = files.text(_JINJA), _JINJA
    return sources or _of_configuration(files)  # any file hides what the configuration has


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


def _of_processor(files: ModelFiles) -> _Source | None:
    for file in ("processor_config.json", "chat_template.json"):
        value = files.object(file).get(_FIELD)
        if isinstance(value, str):
            return value, f"{file}:{_FIELD}"
        if value is not None:
            raise _not_one(files, file, value)
    return (files.text(_JINJA), _JINJA) if files.has(_JINJA) else None


def _not_one(files: ModelFiles, file: str, value: JsonValue) -> ModelError:
    return ModelError(
        Reason.INVALID_CONFIG_FIELD,
        f"{files.path(file)}: {_FIELD} must be a template, found {type(value).__name__}.",
    )
