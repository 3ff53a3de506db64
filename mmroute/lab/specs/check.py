"""Checks a family spec file, and reports all errors in it."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from mmroute.engine import find_engine
from mmroute.errors import MmrouteError, Reason, SpecError, did_you_mean, problem, quoted
from mmroute.families.lookup import Lookup
from mmroute.families.matching import known_families, match_family
from mmroute.families.media import media_problems
from mmroute.families.processors import with_processors
from mmroute.families.spec import FamilySpec
from mmroute.geometry.registry import GRIDS
from mmroute.model.resolve import resolve_files
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import MODEL_FILES, PARTS, ModelFiles, find_model
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import REFERENCE_ONLY

_ANY: Final = ("*",)
_FILES: Final = (*MODEL_FILES, *PARTS)
_OTHERS: Final = "installed specs"
_QUOTED: Final = re.compile(r"'([^']*)'")
_TOML_PLACE: Final = re.compile(r" \(at ([^()]*)\)$")


@dataclasses.dataclass(frozen=True, slots=True)
class SpecProblem:
    """One error of a spec."""

    place: str  # the dotted path of the field, such as ``image.grid.patchsize``
    found: str  # the value of the field, shortened; empty if it has none
    message: str  # the value that the field must have, or what to do

    def __str__(self) -> str:
        found = f" (found {self.found})" if self.found else ""
        return f"{self.place}: {self.message}{found}"


@dataclasses.dataclass(frozen=True, slots=True)
class SpecReport:
    """The result of a check of a spec file."""

    file: str  # the file's name, as the caller gave it
    # The problems that were found; the spec is valid if there are none.
    problems: tuple[SpecProblem, ...]
    spec: FamilySpec | None = None  # the spec; None if it could not be read
    # The model resolved by this spec; None if none was given or it failed.
    resolved: ResolvedModel | None = None

    @property
    def valid(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The report as values for JSON; ``values`` is as in ``mmroute resolve --json``."""
        spec = self.spec
        report = {
            "file": self.file,
            "valid": self.valid,
            "problems": [dataclasses.asdict(each) for each in self.problems],
            "family": spec.family if spec else None,
            "title": spec.title if spec else None,
            "match": {str(ref): list(v) for ref, v in spec.match.items()} if spec else {},
            "grid": {m.value: media.grid.name for m, media in spec.media.items()} if spec else {},
            "layout": {m.value: one.layout.name for m, one in spec.media.items()} if spec else {},
            "checked": {engine: list(v) for engine, v in spec.checked.items()} if spec else {},
        }
        if self.resolved is not None:
            origins = self.resolved.origins
            report["values"] = [dataclasses.asdict(origin) for origin in origins]
        return report


def check_spec(file: Path, *, model: str | None = None) -> SpecReport:
    """Check a spec file, which need not be installed."""
    raw = _read(file)
    if isinstance(raw, SpecProblem):
        return SpecReport(str(file), (raw,))
    together = list(_media_problems(raw))
    try:
        spec = FamilySpec.model_validate(raw)
    except ValidationError as error:
        fields = [_field_problem(each) for each in error.errors() if each["loc"] or not together]
        return SpecReport(str(file), (*fields, *together))
    problems = [*together, *_value_problems(spec), *_format_problems(spec), *_collisions(spec)]
    if problems or model is None:
        return SpecReport(str(file), tuple(problems), spec)
    try:
        resolved = resolve_by(spec, model)
    except MmrouteError as error:
        invalid = SpecProblem(f"model {model}", "", f"{error.reason}: {error}")
        return SpecReport(str(file), (invalid,), spec)
    uncovered = [(one, why) for one, why in resolved.uncovered.items() if why]
    left_out = [SpecProblem(f"model {model}", f"{one}s", why) for one, why in uncovered]
    return SpecReport(str(file), tuple(left_out), spec, resolved)


def _read(file: Path) -> dict[str, Any] | SpecProblem:
    """The tables of a spec, with those of its processor classes below them."""
    try:
        return with_processors(tomllib.loads(file.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        words = _TOML_PLACE.sub("", str(error))
        return SpecProblem(place[1] if place else "the file", "", f"not TOML: {words}")
    except (OSError, UnicodeDecodeError) as error:
        return SpecProblem("the file", "", f"cannot be read: {error}")
    except SpecError as error:
        return SpecProblem("processors", "", str(error))


def _field_problem(error: Mapping[str, Any]) -> SpecProblem:
    """One of pydantic's errors, with a suggestion if the field has few possible values."""
    *parents, last = loc = error["loc"] or ("the file",)
    shown = [key for key, above in zip(loc, ("", *loc), strict=False) if not _unwritten(key, above)]
    place, value = ".".join(map(str, shown)), quoted(error["input"])
    if not error["loc"]:
        return SpecProblem(place, "", problem(error))
    match error["type"]:
        case "missing":
            return SpecProblem(place, "", "must be given")
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = _fields_at(parents)
            listed = f"; there are {', '.join(known)}"
            message = f"there is no such field{did_you_mean(str(last), known) or listed}"
        case "literal_error":
            known = _QUOTED.findall(error["ctx"]["expected"])
            near = did_you_mean(str(error["input"]), known)
            message = f"must be one of {', '.join(known)}{near}"
        case _:
            message = _in_words(error["msg"])
    return SpecProblem(place, value, message)


def _unwritten(key: object, above: object) -> bool:
    """Whether a key stands in no file: the numbers of a grid stand beside its name."""
    return key == "values" and above in ("grid", "layout")


def _in_words(message: str) -> str:
    """A message of pydantic in the words of TOML."""
    words = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return words.replace("valid tuple", "list").replace("valid dictionary", "table")


def _fields_at(path: Collection[Any]) -> list[str]:
    """The fields that a table of the spec may have, by the path of the table."""
    model: type[BaseModel] = FamilySpec
    annotation: Any = FamilySpec
    for key in path:
        if annotation is model:
            annotation = next(
                f.annotation for name, f in model.model_fields.items() if key in (name, f.alias)
            )
        else:  # a table whose keys the author chooses
            annotation = typing.get_args(annotation)[1]
        if isinstance(annotation, UnionType) or typing.get_origin(annotation) is Annotated:
            annotation = typing.get_args(annotation)[0]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    if dataclasses.is_dataclass(annotation):
        return [field.name for field in dataclasses.fields(annotation)]
    return [field.alias or name for name, field in model.model_fields.items()]


def _media_problems(raw: Mapping[str, Any]) -> Iterator[SpecProblem]:
    """The values that a modality's table lacks, or that its grid or layout does not know."""
    table = raw.get("tokens")
    tokens = table if isinstance(table, dict) else {}
    placement = str(raw.get("placement", "targets"))
    for modality in Modality:
        media = raw.get(modality)
        if isinstance(media, dict):
            for place, message in media_problems(modality, media, tokens, placement=placement):
                value = media.get(place)
                found = "" if value is None else quoted(value)
                yield SpecProblem(f"{modality}.{place}", found, message)


def _value_problems(spec: FamilySpec) -> Iterator[SpecProblem]:
    """Values that can never be read, or whose default has the wrong type."""
    lookups: dict[str, tuple[Lookup, Any]] = {"context_length": (spec.context_length, int)}
    for name, token in spec.tokens.items():
        lookups |= {f"tokens.{name}.id": (token.id, int)} if token.id else {}
        lookups |= {f"tokens.{name}.text": (token.text, str)} if token.text else {}
    for modality, media in spec.media.items():
        kinds = GRIDS.types(media.grid.name)
        for name, lookup in media.grid.values.items():
            lookups[f"{modality}.grid.{name}"] = (lookup, kinds[name])
    for place, (lookup, kind) in lookups.items():
        if not lookup.sources and lookup.default is None:
            yield SpecProblem(place, "", "has neither a place to be read from nor a default")
        elif lookup.default is not None:
            yield from _default_problems(f"{place}.default", lookup.default, kind)
    refs = {f"{place}.from": lookup.sources for place, (lookup, _) in lookups.items()}
    refs |= {f"{place}.equals": lookup.equals for place, (lookup, _) in lookups.items()}
    refs |= {f"tokens.{name}.equals": token.equals for name, token in spec.tokens.items()}
    refs |= {"vocab_size.from": spec.vocab_size.sources, "match": tuple(spec.match)}
    for place, sources in refs.items():
        for ref in sources:
            if ref.file not in _FILES:
                near = did_you_mean(ref.file, _FILES)
                message = f"{ref.file} is not a file that is read from models{near}"
                yield SpecProblem(place, str(ref), message)


def _default_problems(place: str, default: object, kind: Any) -> Iterator[SpecProblem]:
    try:
        # A model's own value is read from JSON in strict mode, so the default is checked likewise.
        TypeAdapter(kind).validate_json(json.dumps(default), strict=True)
    except (ValidationError, TypeError) as error:
        wrong = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        yield SpecProblem(place, quoted(default), _in_words(wrong))


def _format_problems(spec: FamilySpec) -> Iterator[SpecProblem]:
    """Combinations of tokenizer and placement that do not work together."""
    mistral = spec.tokenizer.has_chat_encoder
    if spec.media and (spec.placement == "rendered") != mistral:
        message = "rendered is the placement of the tokenizer format mistral, and of no other"
        yield SpecProblem("placement", quoted(spec.placement), message)


def _collisions(spec: FamilySpec) -> Iterator[SpecProblem]:
    try:
        known = known_families()
    except SpecError as error:
        remedy = "correct or uninstall it first, because this file is compared with every other"
        yield SpecProblem(_OTHERS, "", f"{error}; {remedy}")
        return
    for other in known:
        if _is_installed(spec, other):
            continue
        if other.family == spec.family:
            message = (
                f"another spec of {other.package} has this name; a family needs a name of its own "
                "(an older version of this file: install it again)"
            )
            yield SpecProblem("family", quoted(spec.family), message)
        if _may_both_match(spec, other):
            message = f"a model may match this and the family {other.family} at once"
            match = ", ".join(f"{ref} {' or '.join(v)}" for ref, v in spec.match.items())
            yield SpecProblem("match", match, message)


def _is_installed(spec: FamilySpec, other: FamilySpec) -> bool:
    """Whether the installed spec is the file's, which does not say what package installed it."""
    return other == spec.model_copy(update={"package": other.package})


def _may_both_match(spec: FamilySpec, other: FamilySpec) -> bool:
    """Whether a model may match both specs: they read the same fields, with common values.

    It cannot if one of them wants a field that no model of the other has.
    """
    if _excludes(spec, other) or _excludes(other, spec):
        return False
    shared = spec.match.keys() & other.match.keys()
    return bool(shared) and all(_agree(spec.match[ref], other.match[ref]) for ref in shared)


def _excludes(spec: FamilySpec, other: FamilySpec) -> bool:
    return any(other.match.get(ref) for ref in spec.without)


def _agree(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether a field may match both; ``*`` stands for any value, and empty for no such field."""
    if not one or not other:
        return one == other
    return _ANY in (one, other) or not {*one}.isdisjoint(other)


def resolve_by(spec: FamilySpec, model: str | Path) -> ResolvedModel:
    """A model resolved by a spec, which need not be installed."""
    files = find_model(str(model))
    if not spec.matches(files):
        raise SpecError(f"the spec does not match: {_unmatched(spec, files)}")
    try:
        other = match_family(files)
    except MmrouteError as error:
        if error.reason is not Reason.UNKNOWN_FAMILY:
            raise
    else:
        # By their names, because the other one is read for the processor that these files name.
        if other.family != spec.family:
            raise SpecError(f"{model} is matched by the family {other.family} too")
    return resolve_files(files, spec, find_engine("vllm"), str(model), fast_paths=REFERENCE_ONLY)


def _unmatched(spec: FamilySpec, files: ModelFiles) -> str:
    values = {ref: files.lookup(ref)[1] for ref in spec.match}
    return ", ".join(
        f"{ref} is {quoted(values[ref])}, wanted {' or '.join(allowed)}"
        for ref, allowed in spec.match.items()
    )
