"""Processor classes: the fields that each reads, once for all families that load it.

transformers loads a part of a model's processor by the class that the part's file names. The fields
of the file, their defaults and what null does are the class's.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from mmroute.errors import SpecError, did_you_mean, problem
from mmroute.families.lookup import Strict
from mmroute.families.overlays import overlaid
from mmroute.families.sources import spec_folders, toml_files
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles

_FOLDER: Final = "processors"
Part: TypeAlias = Literal["image_processor", "video_processor", "feature_extractor"]
_MODALITIES: Final = ("image", "video", "audio")
_CLASSES: Final = "processor_classes.toml"
_OF_CONFIG: Final = FieldRef("config.json", ("feature_extractor_type",))


class ProcessorSpec(Strict):
    """One class of processors. Data, in ``model_specs/processors/*.toml``."""

    name: str
    """The name of the class, without ``Fast``."""
    part: Part
    """The part of a model's processor that it is. Places without a file are fields of this part."""
    idle: tuple[str, ...] = ()
    """Fields that the class reads, and that change no count."""
    never_null: tuple[str, ...] = ()
    """Fields with which the engine fails if they are null."""
    only: Mapping[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Field -> the values with which counts were compared, ``null`` for null. With others a model
    is refused, or its videos are."""
    grid: Mapping[str, Any] = Field(default_factory=dict)
    """As in the table of a modality, like the fields below. A number without `from` is the field of
    its own name, and the default of one without `note` is the class's."""
    accepts: Any = None
    """The arguments of requests that the class takes."""
    metadata: Any = None
    """What the class returns beside tensors."""
    other_arguments: Any = None
    """What it does with other arguments."""
    checked_for_videos: Any = None
    """Counts that its video processor also checks in requests with images alone."""
    processor_reads: Any = None
    """Names that this video processor reads."""

    def media(self) -> dict[str, Any]:
        """The part of a modality's table that the class decides."""
        table = self.model_dump(exclude_unset=True, exclude={"name", "part", "idle"})
        return table | {
            "grid": {name: self._value(name, value) for name, value in self.grid.items()},
            "only": {self._place(name): values for name, values in self.only.items()},
            "never_null": [self._place(name) for name in self.never_null],
        }

    def _value(self, name: str, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        lookup = {"from": [name], **value}
        for key in ("from", "equals"):
            if key in lookup:
                lookup[key] = [self._place(place) for place in lookup[key]]
        return {"note": self.name, **lookup} if "default" in lookup else lookup

    def _place(self, place: str) -> str:
        return place if ":" in place else f"{self.part}:{place}"


@cache
def find_processor(name: str) -> ProcessorSpec:
    """The table of a class of processors.

    Raises:
        SpecError: there is none, or it is malformed.
    """
    folders = [folder / _FOLDER for _, folder in spec_folders()]
    file = next((found for found in (f / f"{name}.toml" for f in folders) if found.is_file()), None)
    if file is None:
        known = [f.name.removesuffix(".toml") for folder in folders for f in toml_files(folder)]
        raise SpecError(f"there is no processor {name!r}{did_you_mean(name, known)}")
    try:
        return ProcessorSpec.model_validate(
            {"name": name, **tomllib.loads(file.read_text(encoding="utf-8"))}
        )
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file.name} is not TOML: {error}") from error
    except ValidationError as error:
        raise SpecError(f"{file.name}: {'; '.join(map(problem, error.errors()))}") from error


def with_processors(table: Mapping[str, Any], files: ModelFiles | None = None) -> dict[str, Any]:
    """A family's table, laid over those of the classes that it was proved with.

    Args:
        table: the parsed spec of the family.
        files: a model's files, which may name another than the first class of a modality.

    Raises:
        SpecError: a class has no table, or its table is malformed.
    """
    completed = dict(table)
    for modality in _MODALITIES:
        media = table.get(modality)
        names = media.get("processors") if isinstance(media, Mapping) else None
        if isinstance(media, Mapping) and isinstance(names, list) and names:
            spec = find_processor(str(names[0]))
            fixed = bool(media.get("whatever_named"))
            named = named_processor(files, spec.part, names) if files and not fixed else None
            if named != spec.name and named in names:
                spec = find_processor(str(named))
            of_class = spec.media()
            if "other_arguments" in media:  # the family's own processor reads them, and no others
                of_class.pop("accepts", None)
                of_class.pop("checked_for_videos", None)
            never_null = [*of_class["never_null"], *media.get("never_null", [])]
            completed[modality] = overlaid(of_class, media) | {"never_null": never_null}
    return completed


def named_processor(files: ModelFiles, part: Part, proved: Collection[str]) -> object:
    """The class that the files name for a part; None leaves it to the model's type.

    transformers takes the class of the model's type for a name that it does not know, too, but does
    not load a feature extractor then. A video processor without a name is the namesake of the image
    processor, if there is one.

    Args:
        files: the model's files.
        part: the part of the model's processor.
        proved: the classes that the family was proved with, which may come with the model.

    Source: transformers ``models/auto/image_processing_auto.py``, ``video_processing_auto.py`` and
    ``feature_extraction_auto.py`` (`from_pretrained`).
    """
    named = _field(files, part, f"{part}_type")
    if part == "feature_extractor":
        return files.lookup(_OF_CONFIG)[1] if named is None else named
    if named is None and part == "image_processor":
        named = _renamed(_field(files, part, "feature_extractor_type"), "FeatureExtractor", "Image")
    elif named is None and part == "video_processor":
        named = _renamed(_field(files, part, "image_processor_type"), "ImageProcessor", "Video")
    if isinstance(named, str) and part != "video_processor":
        named = named.removesuffix("Fast")
    if named is None or named in proved:
        return named
    return named if not isinstance(named, str) or named in _known_classes()[part] else None


def _field(files: ModelFiles, part: Part, name: str) -> JsonValue:
    return files.lookup(files.effective(FieldRef(part, (name,))))[1]


def _renamed(name: JsonValue, ending: str, kind: str) -> JsonValue:
    return name.replace(ending, f"{kind}Processor") if isinstance(name, str) else name


@cache
def _known_classes() -> Mapping[str, list[str]]:
    text = (importlib.resources.files(__package__) / _CLASSES).read_text(encoding="utf-8")
    classes: Mapping[str, list[str]] = tomllib.loads(text)
    return classes
