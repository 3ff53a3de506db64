"""Splits a command line as a shell does, and names what only a shell could do with it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

from mmroute.errors import ModelError, Reason, malformed, quoted

UNEXPANDED: Final = "\ue000"
"""Stands for a `$` in front of a name that a shell would replace by its value."""
COMMENT: Final = "\ue001"
"""A word that stands for a comment, which ends a command."""

_PARTS: Final = re.compile(
    r"""'[^']*' | "(?:\\.|[^"\\])*" | (?<!\S)\#[^\n]*
    | \\(?:\n|\Z) | (?<!\S)\\[ \t] | \\[ \t]+\n | \\.
    | \$\( | \$(?=[A-Za-z_{@*]) | [\u201c\u201d\u201e\u2018\u2019] | (?<!\S)[\u2013\u2014]""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE_QUOTES: Final = re.compile(r"(\\.)|\$(?=[A-Za-z_{(@*])", re.DOTALL)
_DASHES: Final = ("\u2013", "\u2014")
_QUOTES: Final = ("\u201c", "\u201d", "\u201e", "\u2018", "\u2019")
OPERATORS: Final = ";&|<>()"
"""What a shell reads between words."""
# A file of a command line or of options, which is no model.
_FILES: Final = frozenset({
    ".args", ".bash", ".cfg", ".conf", ".env", ".ini", ".json", ".service", ".sh", ".toml", ".txt",
    ".yaml", ".yml", ".zsh",
})  # fmt: skip


def wrong(message: str) -> ModelError:
    """The error for a setting that the engine does not have."""
    return ModelError(Reason.INVALID_ENGINE_SETTING, message)


def shell_words(text: str) -> list[str]:
    """The words of a command line; operators such as `;` and comments are words of their own."""
    marked = _PARTS.sub(_marked, text.replace("\r\n", "\n"))
    lexer = shlex.shlex(marked, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError as error:
        raise wrong(f"the engine's command line cannot be read: {error}") from None


def read_yaml(path: str) -> Any:
    """The content of a file of options."""
    import yaml  # type: ignore[import-untyped]  # of huggingface_hub; only for such a file

    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(Reason.MISSING_FILE, f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise malformed(f"{path} is not YAML: {error}") from error


def check_model(model: str) -> None:
    """Check that a model string is no file in which a command line or options are."""
    path = Path(model.lstrip("@"))
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except OSError:  # it is too long for a path
        return
    suffix = path.suffix.lower()
    if is_directory or not (suffix in _FILES or (is_file and suffix != ".gguf")):
        return
    remedy = f'give what is in it, --engine-args "$(cat {path})" (in Python: its text)'
    if suffix in {".yaml", ".yml"}:
        remedy = f"a file of options is given as --engine-config {path}"
    raise wrong(f"{quoted(model)} is a file, and no model: {remedy}")


def check_object(option: str, value: str) -> None:
    """Check that a value which looks like a JSON object is one; templates begin alike."""
    if not value.startswith("{") or value.startswith(("{{", "{%", "{#")):
        return
    try:
        json.loads(value)
    except ValueError as error:
        if any(mark in value for mark in _QUOTES):
            why = 'it has typographic quotes, and JSON has straight ones (")'
        elif '"' in value:
            why = str(error)
        elif "'" in value:
            why = 'JSON has double quotes (") around names and texts'
        else:
            why = (
                "a shell takes quotes away: put the whole object between single quotes, such as "
                f"--{option} '{{\"name\": 1}}'"
            )
        raise wrong(f"--{option} must be a JSON object, found {quoted(value)}: {why}") from None


def check_expanded(name: str, value: str) -> None:
    """Check that nothing in the value of a setting is left for a shell to expand."""
    if UNEXPANDED in value:
        written = value.replace(UNEXPANDED, "$")
        raise wrong(
            f"{name} has the value {quoted(written)}, which only a shell expands: give the value "
            "that the engine gets"
        )


def _marked(part: re.Match[str]) -> str:
    text = part[0]
    match text[0]:
        case "#":
            return COMMENT
        case "$" if text == "$(":
            raise wrong("$(...) is run by a shell between double quotes, not between single ones")
        case "$":
            return UNEXPANDED
        case '"':
            return _IN_DOUBLE_QUOTES.sub(lambda found: found[1] or UNEXPANDED, text).replace(
                "\\\n", ""
            )
        case "\\" if text in {"\\", "\\\n"}:
            return " "
        case "\\" if text[1] in " \t":
            raise wrong(
                "a backslash continues a line only as its last character, and a space follows it: "
                "remove the space or the backslash"
            )
    if text in _DASHES:
        raise wrong(f"{quoted(text)} is a typographic dash: options begin with --")
    if text in _QUOTES:
        raise wrong(f"{quoted(text)} is a typographic quote: write ' or \"")
    return text
