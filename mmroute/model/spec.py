"""Family specs: how one family of models is read. Data, in ``model_specs/*.toml``."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.resources
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from mmroute.errors import ModelError, Reason, SpecError, did_you_mean, problem
from mmroute.geometry.algorithms import GEOMETRIES
from mmroute.model.files import FieldRef, JsonValue, ModelFiles
from mmroute.tokenizers.pipelines import PIPELINES

__all__ = [
    "FamilySpec",
    "GeometrySpec",
    "Lookup",
    "PlaceholderSpec",
    "TokenLookup",
    "known_families",
    "load_spec",
    "match_family",
    "spec_files",
]

ENTRY_POINTS = "mmroute.specs"
"""Entry point group of other packages' specs: each names a package that holds ``*.toml``."""

_Ref = Annotated[
    FieldRef, BeforeValidator(lambda v: FieldRef.parse(v) if isinstance(v, str) else v)
]


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{name!r} is none of {', '.join(sorted(known))}{hint}")
        return name

    return check


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Lookup(_Strict):
    """Where a value is read: the first place that has it, else the default."""

    sources: tuple[_Ref, ...] = Field(default=(), alias="from")
    default: Any = None
    note: str = ""


class TokenLookup(_Strict):
    """A token: read as an ID, or as a text whose ID the vocabulary gives."""

    id: Lookup | None = None
    text: Lookup | None = None
    equals: tuple[_Ref, ...] = ()
    """Places that, where present, must give the same ID."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.id is None) == (self.text is None):
            raise ValueError("give exactly one of id and text")
        return self


class TokenizerSpec(_Strict):
    """Which tokenizer files the family has, and how the engine builds each class."""

    format: Literal["huggingface", "mistral"] = "huggingface"
    pipelines: Mapping[str, Annotated[str, AfterValidator(_one_of(PIPELINES))]] = Field(
        default_factory=dict
    )
    """Tokenizer class -> pipeline; ``*`` is any class."""

    @property
    def has_chat_encoder(self) -> bool:
        """Whether chats are encoded by the tokenizer itself, without a template."""
        return self.format == "mistral"


class PlaceholderSpec(_Strict):
    """How images find their place in a prompt."""

    rule: Literal["single_token", "numbered_tags", "merged_blank_lines", "rendered"]
    target: str = "image"
    chat_text: str | None = None


class GeometrySpec(_Strict):
    """Which algorithm counts, and where its numbers are read."""

    name: Annotated[str, AfterValidator(_one_of(GEOMETRIES))]
    values: Mapping[str, Lookup] = Field(default_factory=dict)
    texts: Mapping[str, str] = Field(default_factory=dict)
    """Words the engine puts around images; encoded once, when the model is loaded."""


class ContextSpec(_Strict):
    """The longest prompt of the model."""

    length: Lookup
    rope_scaling: Literal["applied", "included"] = "applied"
    """Whether a RoPE scaling factor multiplies the length, or the length includes it."""


class FamilySpec(_Strict):
    """One family of models."""

    family: str
    title: str
    match: Annotated[Mapping[_Ref, tuple[str, ...]], Field(min_length=1)]
    """Field -> the values it may have; all must match, and exactly. ``*``: any value."""
    checked: Mapping[str, tuple[str, ...]]
    """What the family was proved equal to: engine -> versions."""
    embedded: tuple[str, ...] = ()
    """Models that need no configuration file, by name."""
    tokenizer: TokenizerSpec
    tokens: Mapping[str, TokenLookup] = Field(default_factory=dict)
    placeholder: PlaceholderSpec | None = None
    """None: the engine takes no images for this family, only text."""
    geometry: GeometrySpec | None = None
    context: ContextSpec
    vocab_size: Lookup = Lookup()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.geometry is None) != (self.placeholder is None):
            raise ValueError("geometry and placeholder belong together: give both or neither")
        if self.geometry is None or self.placeholder is None:
            return self
        if self.placeholder.rule in ("single_token", "merged_blank_lines"):
            _one_of(self.tokens)(self.placeholder.target)
        fields = {f.name: f for f in dataclasses.fields(GEOMETRIES[self.geometry.name])}  # type: ignore[arg-type]  # all of them are dataclasses
        for name in [*self.geometry.values, *self.geometry.texts]:
            _one_of(fields)(name)
        given = {
            *self.geometry.values,
            *self.geometry.texts,
            *(f"{t}_token_id" for t in self.tokens),
        }
        missing = [
            n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in given
        ]
        if missing:
            raise ValueError(f"geometry {self.geometry.name} needs {', '.join(missing)}")
        return self

    def matches(self, files: ModelFiles) -> bool:
        """Whether the family is the one of these files."""
        if files.name in self.embedded and not files.has("config.json"):
            return True
        return all(
            self._accepts(files.lookup(field), allowed) for field, allowed in self.match.items()
        )

    @staticmethod
    def _accepts(found: tuple[bool, JsonValue], allowed: tuple[str, ...]) -> bool:
        present, value = found
        if not present:
            return False
        # `architectures` is a list; the engine goes by its entries.
        values = value if isinstance(value, list) else [value]
        return allowed == ("*",) or any(v in allowed for v in values)


def load_spec(text: str, origin: str) -> FamilySpec:
    """Read one family spec.

    Raises:
        SpecError: naming the file, the field, and what was found there.
    """
    try:
        return FamilySpec.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{origin} is not TOML: {error}") from error
    except ValidationError as error:
        raise SpecError(f"{origin}: {'; '.join(map(problem, error.errors()))}") from error


@cache
def known_families() -> tuple[FamilySpec, ...]:
    """All family specs: the shipped ones, then those of installed packages.

    Raises:
        SpecError: one is malformed, or two have one name.
    """
    specs: dict[str, FamilySpec] = {}
    for file in spec_files():
        spec = load_spec(file.read_text(encoding="utf-8"), file.name)
        if spec.family in specs:
            raise SpecError(f"{file.name}: a family {spec.family!r} is already known")
        specs[spec.family] = spec
    return tuple(specs.values())


def match_family(files: ModelFiles) -> FamilySpec:
    """The one family spec that matches a model.

    Raises:
        ModelError: `unknown_family`, or
            `contradictory_config`.
        SpecError: two match.
    """
    if files.has("config.json") and files.has("params.json") and files.has("tekken.json"):
        raise ModelError(
            Reason.CONTRADICTORY_CONFIG,
            f"{files.name} has both config.json and params.json with tekken.json. The engine "
            "chooses between the two formats by the weights that lie beside them, and their token "
            "IDs differ. Give a directory with the files of one format only.",
        )
    matching = [spec for spec in known_families() if spec.matches(files)]
    if len(matching) > 1:
        names = ", ".join(spec.family for spec in matching)
        raise SpecError(f"{files.name} is matched by more than one family spec: {names}")
    if matching:
        return matching[0]
    raise ModelError(Reason.UNKNOWN_FAMILY, _unknown(files))


def spec_files() -> Iterator[Traversable]:
    """The files of all family specs: the shipped ones, then those of installed packages.

    Raises:
        SpecError: an installed package does not hold what it says.
    """
    packaged = importlib.resources.files("mmroute") / "model_specs"
    # In a source checkout the specs stand beside the package, and a wheel takes them in.
    root = packaged if packaged.is_dir() else Path(__file__).parents[2] / "model_specs"
    yield from _toml_files(root)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            yield from _toml_files(importlib.resources.files(point.value))
        except (ImportError, OSError, TypeError) as error:
            owner = point.dist.name if point.dist else "an installed package"
            raise SpecError(
                f"{owner}: the entry point {point.name!r} of {ENTRY_POINTS} must name a package "
                f"that holds *.toml files, found {point.value!r}: {error}"
            ) from error


def _toml_files(root: Traversable) -> list[Traversable]:
    files = (file for file in root.iterdir() if file.name.endswith(".toml"))
    return sorted(files, key=lambda file: file.name)


def _unknown(files: ModelFiles) -> str:
    config = files.object("config.json")
    has = ", ".join(files.names()) or "none of the files a model needs"
    if not config and not files.has("params.json"):
        return (
            f"{files.name} has neither config.json nor params.json, so its family cannot be told "
            f"(found: {has}). Add the model's configuration files."
        )
    return (
        f"No family spec matches {files.name}: model_type {config.get('model_type')!r}, "
        f"architectures {config.get('architectures')!r}. `mmroute families` lists what is "
        "supported; CONTRIBUTING.md says how to add a family."
    )
