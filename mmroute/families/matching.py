"""Finds the family specs of this package and installed ones, and the spec of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources.abc import Traversable
from typing import Final

from mmroute.errors import ModelError, Reason, SpecError, quoted
from mmroute.families.sources import packaged_table, spec_folders, toml_files
from mmroute.families.spec import FamilyHead, FamilySpec, read_table
from mmroute.model_directory import ModelFiles

_CONFIG: Final = "config.json"
_ARCHITECTURES: Final = "architectures.toml"
_OTHER_TABLE: Final = re.compile(r"^\[(?!match\])", re.MULTILINE)
_OTHER_LINE: Final = re.compile(r"^(?!family|without|embedded|stands_in)\w+ = .*\n", re.MULTILINE)


def spec_files() -> Iterator[tuple[str, Traversable]]:
    """The files of all family specs: the shipped ones, then those of installed packages."""
    for package, folder in spec_folders():
        yield from ((package, file) for file in toml_files(folder))


@dataclass(frozen=True)
class _SpecFile:
    """A family spec. At first only its head is checked, which most models need of it."""

    package: str
    name: str
    text: str
    head: FamilyHead

    @cached_property
    def checked(self) -> FamilySpec:
        """The complete spec."""
        return self.read(None)

    def read(self, files: ModelFiles | None) -> FamilySpec:
        """The spec for a model, whose files name the classes of its processors."""
        spec = read_table(FamilySpec, self.text, self.name, files)
        return spec.model_copy(update={"package": self.package})


@cache
def _read_specs() -> tuple[_SpecFile, ...]:
    specs: dict[str, _SpecFile] = {}
    for package, file in spec_files():
        text = file.read_text(encoding="utf-8")
        head = _head(text, file.name)
        if head.family in specs:
            raise SpecError(f"{file.name}: a family {head.family!r} is already known")
        specs[head.family] = _SpecFile(package, file.name, text, head)
    return tuple(specs.values())


def _head(text: str, name: str) -> FamilyHead:
    """The head of a spec, which stands before its other tables; those take ten times as long."""
    try:
        head = _OTHER_LINE.sub("", _OTHER_TABLE.split(text, 1)[0])
        return read_table(FamilyHead, head, name)
    except SpecError:  # parts of the head stand elsewhere, or the whole file has the error
        return read_table(FamilyHead, text, name)


@cache
def known_families() -> tuple[FamilySpec, ...]:
    """All family specs: the shipped ones, then those of installed packages."""
    return tuple(file.checked for file in _read_specs())


def match_family(
    files: ModelFiles, why_refused: Callable[[Sequence[object]], str] = lambda _: ""
) -> FamilySpec:
    """The one family spec that matches a model."""
    vocabularies = files.names(("tekken.json", "tokenizer.model.v*"))
    if files.has("config.json") and files.has("params.json") and vocabularies:
        raise ModelError(
            Reason.CONTRADICTORY_CONFIG,
            f"{files.name} has both config.json and params.json with {vocabularies[0]}. The engine "
            "chooses between the two formats by the weights that lie beside them, and their token "
            "IDs differ. Give a directory with the files of one format only.",
        )
    completed = _with_architecture(files)
    found = [spec for spec in _read_specs() if spec.head.matches(completed)]
    matching = [s for s in found if not any(files.lookup(ref)[0] for ref in s.head.without)]
    if found and not matching:
        head = found[0].head
        named = ", ".join(str(ref) for ref in head.without if files.lookup(ref)[0])
        raise ModelError(
            Reason.CONTRADICTORY_CONFIG,
            f"{files.name} is of the family {head.family} by what it matches, but has {named}. "
            "Give the configuration of one model.",
        )
    if len(matching) > 1:
        names = ", ".join(spec.head.family for spec in matching)
        raise SpecError(f"{files.name} is matched by more than one family spec: {names}")
    if matching:
        spec = matching[0].checked
        several = any(len(media.processors) > 1 for media in spec.media.values())
        return matching[0].read(files) if several else spec
    raise ModelError(Reason.UNKNOWN_FAMILY, _unknown(files, why_refused))


def check_generates(files: ModelFiles) -> None:
    """Refuse a model that names no class, where the engine's server takes it for one that embeds.

    With ``--runner generate`` the engine takes transformers' implementation. Source: vLLM
    ``transformers_utils/config.py`` (`get_config`), ``config/model.py``
    (`_get_default_runner_type`), ``model_executor/models/registry.py`` (`inspect_model_cls`).
    """
    config = files.object(_CONFIG)
    generating = packaged_table(_ARCHITECTURES)["pooling"].get(str(config.get("model_type")))
    if generating is not None and not config.get("architectures"):
        raise ModelError(
            Reason.MISSING_CONFIG_FIELD,
            f"{files.name}: config.json has no architectures, and vLLM's server takes the model "
            f"for one that embeds. Add [{quoted(generating)}] there, for the engine as well.",
        )


def _with_architecture(files: ModelFiles) -> ModelFiles:
    """The files with the class that the engine takes for a model that names none.

    Source: vLLM ``transformers_utils/config.py`` (`get_config`) and
    ``model_executor/models/registry.py`` (`_normalize_arch`).
    """
    config = files.object(_CONFIG)
    tables = packaged_table(_ARCHITECTURES).values()
    kind = str(config.get("model_type"))
    architecture = next((table[kind] for table in tables if kind in table), None)
    if config.get("architectures") or architecture is None:
        return files
    return replace(files, _json={_CONFIG: {**config, "architectures": [architecture]}})


def _unknown(files: ModelFiles, why_refused: Callable[[Sequence[object]], str]) -> str:
    config = files.object("config.json")
    if not config and not files.has("params.json"):
        has = ", ".join(files.names()) or "none of the files a model needs"
        return (
            f"{files.name} has neither config.json nor params.json, so its family cannot be told "
            f"(found: {has}). Add the model's configuration files."
        )
    kind, named = config.get("model_type"), config.get("architectures")
    found = f"model_type {kind!r}, architectures {named!r}"
    why = why_refused(named if isinstance(named, list) else [])
    if why:
        return f"{files.name} is of a family that is not covered ({found}): {why}."
    return (
        f"No family spec matches {files.name}: {found}. `mmroute families` lists what is "
        "supported; `mmroute docs new-model` says how to add a family."
    )
