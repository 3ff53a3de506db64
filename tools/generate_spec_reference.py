"""Write `docs/spec-reference.md`: every field of a family spec, from the code that reads it.

    python tools/generate_spec_reference.py

The fields, their defaults and what stands below each in the code are those of the pydantic models
and dataclasses that read a spec, so a field that is not documented there is an error here.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from mmroute.families.lookup import Condition, Lookup, TokenLookup
from mmroute.families.media import MediaSpec
from mmroute.families.processors import ProcessorSpec
from mmroute.families.spec import ChatSpec, FamilySpec, KvPageSpec, TokenizerSpec
from mmroute.geometry.arguments import Argument, Kind, Where
from mmroute.geometry.registry import GRIDS, LAYOUTS
from mmroute.model_directory import FieldRef
from mmroute.placement.rules import PLACEMENTS
from mmroute.plugins import Registry
from mmroute.requests.items import Modality

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "spec-reference.md"
_FIELDS: Final = ROOT / "mmroute" / "geometry" / "fields.toml"
_HEAD: Final = """\
# Fields of a family spec

This page is written by `tools/generate_spec_reference.py` from the code that reads specs, and a
test compares the two. [Bring in a new model](new-model.md) says how a spec is made.

A *place* is a file and a field of it, such as `config.json:vision_config.patch_size`. In place of a
file it may name a part of the model's processor, such as `image_processor:patch_size`: transformers
reads a part from processor_config.json, or else from a file of its own. A field of the processor
itself, such as `processor:processor_class`, is read from the first of its files that has it. A
*value* is a number, a text or a switch as it is written, or a table that says
[where it is read](#a-value).
*Words* are a text of tokens, such as `"{start}{fill}{end}"`.
"""
_TABLES: Final[tuple[tuple[str, type], ...]] = (
    ("The top of the file", FamilySpec),
    ("`[tokens.NAME]`", TokenLookup),
    ("A value", Lookup),
    ("`[image]`, `[video]`, `[audio]`", MediaSpec),
    ("A class of processors: `processors/CLASS.toml`", ProcessorSpec),
    ("`only`: what a field may hold", Condition),
    ("`[image.accepts]`: one argument of requests", Argument),
    ("`[tokenizer]`", TokenizerSpec),
    ("`[chat]`", ChatSpec),
    ("`[[kv_pages]]`", KvPageSpec),
)
_SHARED: Final = "Many grids need these numbers:"
_MANY: Final = 3
_HEADER: Final = ("| field | is | default | meaning |", "| --- | --- | --- | --- |")
_Field = tuple[str, str, str, str]
"""Name, kind, default and meaning of a field."""
_SET_BY_READER: Final = frozenset({"package", "modality", "sampling", "name"})  # no file says them
_OF_WORDS: Final = {"integer": "token", "list of integer": "words", "table": "words"}
_PLAIN: Final[Mapping[Any, str]] = {
    bool: "switch", int: "integer", float: "number", str: "text", Any: "anything",
    Lookup: "value", FieldRef: "place",
}  # fmt: skip
_ATTRIBUTES: Final = re.compile(r"Attributes:\n(.*)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"^(\w+): (.*)$")


def page() -> str:
    """The page as it should be."""
    parts = [_HEAD]
    for title, model in _TABLES:
        parts += ["", f"## {title}", "", *_table(_fields(model, _meanings(model)))]
    for title, words in (
        ("Kinds of an argument's value: `kind`", Kind),
        ("Places of an argument: `where`", Where),
    ):
        rows = [f"| `{name}` | {meaning} |" for name, meaning in _members(words)]
        parts += ["", f"## {title}", "", "| word | meaning |", "| --- | --- |", *rows]
    shared, used = _shared_fields(), _used()
    for title, registry in (("Grids", GRIDS), ("Layouts", LAYOUTS)):
        parts += ["", f"## {title}"]
        if registry is GRIDS:
            parts += ["", _SHARED, "", *_HEADER, *map(_row, shared)]
        for name in sorted(registry.own):
            first = inspect.getdoc(registry.find(name)) or ""
            parts += ["", f"### `{name}`", "", first.partition("\n\n")[0].replace("\n", " "), ""]
            parts += [f"As in {', '.join(used[name])}.", ""] if name in used else []
            parts += _table(registered(registry, name), words=registry is LAYOUTS, shared=shared)
    rules: dict[str, list[str]] = {}
    for name in sorted(PLACEMENTS.entries):
        rules.setdefault(_line(inspect.getdoc(PLACEMENTS.find(name)) or ""), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {meaning} |" for meaning, names in rules.items()]
    parts += ["", "## Placements: `placement`", "", "| rule | meaning |", "| --- | --- |", *rows]
    return "\n".join(parts) + "\n"


def _used() -> dict[str, list[str]]:
    """The families that have each grid and layout, where a file names it."""
    folder, found = ROOT / "model_specs", dict[str, list[str]]()
    classes = {path.stem: _read(path) for path in (folder / "processors").glob("*.toml")}
    for spec in map(_read, sorted(folder.glob("*.toml"))):
        names = set()
        for media in (spec.get(one, {}) for one in Modality):
            sources = [media, *(classes.get(name, {}) for name in media.get("processors", ()))]
            names |= {one["grid"].get("name") for one in sources if "grid" in one}
            layout = media.get("layout", {})
            names.add(layout if isinstance(layout, str) else layout.get("name"))
        for name in names - {None}:
            found.setdefault(name, []).append(f"`{spec['family']}`")
    return found


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def registered(registry: Registry, name: str) -> Iterator[_Field]:
    """The numbers of a grid, or the words of a layout."""
    meanings = _read(_FIELDS)
    return _fields(registry.find(name), meanings[registry.kind] | meanings["own"].get(name, {}))


def _table(
    found: Iterable[_Field], *, words: bool = False, shared: Collection[_Field] = ()
) -> list[str]:
    fields = [*found]
    rows = [
        _row((name, _OF_WORDS.get(kind, kind) if words else kind, default, meaning))
        for name, kind, default, meaning in fields
        if (name, kind, default, meaning) not in shared
    ]
    names = ", ".join(f"`{field[0]}`" for field in fields if field in shared)
    lines = [*_HEADER, *rows] if rows else []
    if names:
        also = "It needs" if not rows else "It also needs"
        lines += ["", f"{also} {names}."] if rows else [f"{also} {names}."]
    return lines or ["It has no fields."]


def _row(field: _Field) -> str:
    name, kind, default, meaning = field
    return f"| `{name}` | {kind} | {default} | {meaning} |"


def _shared_fields() -> list[_Field]:
    """The needed fields that many grids have, each with its most frequent meaning."""
    counts = Counter(field for name in GRIDS.own for field in registered(GRIDS, name))
    found: dict[str, _Field] = {}
    for field, count in counts.most_common():
        if count >= _MANY and field[2] == "needed":
            found.setdefault(field[0], field)
    return sorted(found.values())


def _fields(model: type, meanings: Mapping[str, str]) -> Iterator[_Field]:
    hints = typing.get_type_hints(model)
    if issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            if name in _SET_BY_READER:
                continue
            given = field.get_default(call_default_factory=True)
            default = "needed" if field.is_required() else _written(given)
            yield field.alias or name, _kind(hints[name]), default, meanings[name]
        return
    fields: Any = dataclasses.fields  # of any of the dataclasses that are listed
    for one in fields(model):
        if one.init and one.name not in _SET_BY_READER:
            given = one.default is not dataclasses.MISSING
            factory = one.default_factory is not dataclasses.MISSING
            default = _written(one.default) if given else "none" if factory else "needed"
            yield one.name, _kind(hints[one.name]), default, meanings[one.name]


def _written(default: Any) -> str:
    if isinstance(default, Lookup):
        return "none"
    if isinstance(default, ChatSpec):
        return f"`{default.renderer}`"
    if default is None or default in ((), "", {}) or isinstance(default, BaseModel):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def _kind(hint: Any) -> str:
    """What a TOML file has there, in a word."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(hint, "__metadata__"):
        kind = _kind(hint.__origin__)
    elif origin in (typing.Union, types.UnionType):
        kinds = (_kind(one) for one in arguments if one is not types.NoneType)
        kind = " or ".join(dict.fromkeys(kinds))
    elif origin is typing.Literal or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        kind = "one of " + ", ".join(f"`{one}`" for one in arguments or hint)
    elif origin is tuple:
        kind = f"list of {_kind(arguments[0])}"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        kind = f"table of {_kind(arguments[1])}"
    else:
        kind = _PLAIN.get(hint, "table")
    return kind


def _meanings(model: type) -> dict[str, str]:
    """What is written of each field: below it, or under "Attributes" of its class."""
    found: dict[str, str] = {}
    for one in reversed([m for m in model.__mro__ if m.__module__.startswith("mmroute")]):
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):
            continue
        body = ast.parse(textwrap.dedent(source)).body[0]
        if isinstance(body, ast.ClassDef):
            found |= _below(body) | _under_attributes(ast.get_docstring(body) or "")
    return found


def _below(body: ast.ClassDef) -> dict[str, str]:
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        field.target.id: _line(str(text.value.value))
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _under_attributes(docstring: str) -> dict[str, str]:
    section = _ATTRIBUTES.search(docstring)
    found: dict[str, str] = {}
    name = ""
    for line in section[1].splitlines() if section else ():
        if not line.startswith("    "):
            break
        start = _ATTRIBUTE.match(line[4:])
        if start:
            name = start[1]
            found[name] = start[2]
        else:
            found[name] += f" {line.strip()}"
    return {name: _line(text[:1].upper() + text[1:]) for name, text in found.items()}


def _members(words: type[StrEnum]) -> Iterator[tuple[str, str]]:
    body = ast.parse(inspect.getsource(words)).body[0]
    assert isinstance(body, ast.ClassDef)
    for at, node in enumerate(body.body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            following = body.body[at + 1] if at + 1 < len(body.body) else None
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = _line(str(following.value.value))
            yield words[node.targets[0].id].value, text


def _line(text: str) -> str:
    first = text.partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
