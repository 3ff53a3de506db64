"""Which file a model's chat template is in.

Source: vLLM 0.33.0 ``renderers/hf.py`` (precedence); transformers 5.20.2 ``processing_utils.py``
and ``tokenization_utils_base.py`` (files).
"""

from __future__ import annotations

from typing import Final

from mmroute.chat.template import ChatTemplate
from mmroute.errors import ModelError, Reason
from mmroute.model.files import ModelFiles

__all__ = ["chat_templates"]

_NAMED: Final = "additional_chat_templates/"
_JINJA: Final = ("chat_template.jinja", None)
_OF_TOKENIZER: Final = (_JINJA, ("tokenizer_config.json", "chat_template"))
_OF_PROCESSOR: Final = (
    ("processor_config.json", "chat_template"),
    ("chat_template.json", "chat_template"),
    _JINJA,
)


def chat_templates(
    files: ModelFiles, fallback: str | None = None
) -> tuple[ChatTemplate | None, ChatTemplate | None]:
    """The template of requests without tools, and of those with tools.

    The engine takes the processor's first, but only without tools; else the tokenizer's; else its
    own.

    Args:
        files: of the model.
        fallback: the engine's own template for the family.

    Raises:
        ModelError: `malformed_file`; `invalid_config_field` for several named templates.
    """
    named = [name for name in files.names() if name.startswith(_NAMED)]
    if named:
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name}: several named chat templates are not supported: {', '.join(named)}. "
            "Give a directory with one template.",
        )
    tool_template = _first(files, _OF_TOKENIZER)
    if tool_template is None and fallback is not None:
        tool_template = ChatTemplate.compile(fallback, "the engine's own template")
    return _first(files, _OF_PROCESSOR) or tool_template, tool_template


def _first(files: ModelFiles, places: tuple[tuple[str, str | None], ...]) -> ChatTemplate | None:
    for file, field in places:
        if not files.has(file):
            continue
        if field is None:
            return ChatTemplate.compile(files.text(file), file)
        value = files.object(file).get(field)
        if isinstance(value, str):
            return ChatTemplate.compile(value, f"{file}:{field}")
        if value is not None:
            raise ModelError(
                Reason.INVALID_CONFIG_FIELD,
                f"{files.path(file)}: {field} must be one template, found "
                f"{type(value).__name__}; several named templates are not supported.",
            )
    return None
