"""Processor classes: the fields that each reads, once for all families that load it.

transformers loads a part of a model's processor by the class that the part's file names. The fields
of the file, their defaults and what null does are the class's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
_VIDEO_PROCESSORS: Final = frozenset({
    "CohereCompassVideoProcessor", "Cosmos3EdgeVideoProcessor", "EmbeddingGemma2VideoProcessor",
    "Ernie4_5_VLMoeVideoProcessor", "Gemma4UnifiedVideoProcessor", "Gemma4VideoProcessor",
    "Glm46VVideoProcessor", "Glm4vVideoProcessor", "Glm5NextVideoProcessor", "GlmgaVideoProcessor",
    "InstructBlipVideoVideoProcessor", "InternVLVideoProcessor", "Kimi_K25VideoProcessor",
    "LlavaNextVideoVideoProcessor", "LlavaOnevisionVideoProcessor", "MiniCPMV4_6VideoProcessor",
    "MiniMaxM3VLVideoProcessor", "Molmo2VideoProcessor", "MuseGlimmerVideoProcessor",
    "NemotronH_Omni_Reasoning_V3VideoProcessor", "PeVideoVideoProcessor",
    "PerceptionLMVideoProcessor", "Qwen2VLVideoProcessor", "Qwen3VLVideoProcessor",
    "Sam2VideoVideoProcessor", "SmolVLMVideoProcessor", "TimesformerVideoProcessor",
    "VJEPA2VideoProcessor", "VideoLlama3VideoProcessor", "VideoLlavaVideoProcessor",
    "VideoMAEVideoProcessor", "VideomtVideoProcessor", "VivitVideoProcessor",
})  # fmt: skip
"""Those of transformers 5.20.2. With another name in a file it loads no processor at all."""
_OF_CONFIG: Final = FieldRef("config.json", ("feature_extractor_type",))


class ProcessorSpec(Strict):
    """One class of processors. Data, in ``model_specs/processors/*.toml``."""

    name: str
    """The name of the class, without ``Fast``."""
    part: Part
    """The part of a model's processor that it is. Places without a file are fields of this part."""
    base: str | None = None
    """The class whose `idle` and `unless` hold as well; its `never_null`, `never_empty` and `only`
    for fields that are not idle here; and its `switches` if there are none here."""
    idle: tuple[str, ...] = ()
    """Fields that the class reads, and that change no count."""
    never_null: tuple[str, ...] = ()
    """Fields with which the engine fails if they are null."""
    never_empty: tuple[str, ...] = ()
    """Fields with which the engine fails if they are an empty list."""
    unless: Mapping[str, str] = Field(default_factory=dict)
    """Field -> a switch. Where a file has it off, `never_null` and `never_empty` do not hold."""
    per_channel: tuple[str, ...] = ()
    """Fields that hold a number, or one for each channel; the engine fails with all else."""
    only: Mapping[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Field -> the values with which counts were compared, ``null`` for null. With others a model
    is refused, or its videos are."""
    switches: Mapping[str, str] = Field(default_factory=dict)
    """Switch -> the field without which the engine fails where the switch is true."""
    sizes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Size -> its forms: the keys of an object, such as ``height width``; ``square`` where these
    must be equal; ``side`` or ``list``. Others are refused."""
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
        table = self.model_dump(exclude_unset=True, exclude={"name", "part", "base"})
        return table | {
            "grid": {name: self._value(name, value) for name, value in self.grid.items()},
            "never_empty": [self._place(name) for name in self.never_empty],
            "unless": {self._place(k): self._place(v) for k, v in self.unless.items()},
            "only": {self._place(name): values for name, values in self.only.items()},
            "idle": [self._place(name) for name in self.idle],
            "never_null": [self._place(name) for name in self.never_null],
            "switches": {self._place(k): self._place(v) for k, v in self.switches.items()},
            "sizes": {self._place(name): forms for name, forms in self.sizes.items()},
            "per_channel": [self._place(name) for name in self.per_channel],
        }

    def over(self, below: ProcessorSpec) -> ProcessorSpec:
        """This table, laid over that of its base."""
        rest = [name for name in below.never_null if name not in self.idle]
        empty = [name for name in below.never_empty if name not in self.idle]
        only = {name: values for name, values in below.only.items() if name not in self.idle}
        switches = self.switches if "switches" in self.model_fields_set else below.switches
        return self.model_copy(
            update={
                "idle": (*below.idle, *self.idle),
                "never_null": (*rest, *self.never_null),
                "never_empty": (*empty, *self.never_empty),
                "only": {**only, **self.only},
                "switches": switches,
                "unless": {**below.unless, **self.unless},
            }
        )

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
        spec = ProcessorSpec.model_validate(
            {"name": name, **tomllib.loads(file.read_text(encoding="utf-8"))}
        )
        return spec.over(find_processor(spec.base)) if spec.base else spec
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
            named = named_processor(files, spec.part) if files and not fixed else None
            if named != spec.name and named in names:
                spec = find_processor(str(named))
            of_class = spec.media()
            if "other_arguments" in media:  # the family's own processor reads them, and no others
                of_class.pop("accepts", None)
                of_class.pop("checked_for_videos", None)
            own = media.get("never_null", of_class["never_null"])
            if own:  # an empty list takes those of the class away
                own = list(dict.fromkeys([*of_class["never_null"], *own]))
            completed[modality] = overlaid(of_class, media) | {"never_null": own}
    return completed


def named_processor(files: ModelFiles, part: Part) -> object:
    """The class that the files name for a part; None leaves it to the model's type.

    A video processor without a name is the namesake of the image processor, if there is one.

    Source: transformers ``models/auto/image_processing_auto.py``, ``video_processing_auto.py`` and
    ``feature_extraction_auto.py`` (`from_pretrained`).
    """
    named = _field(files, part, f"{part}_type")
    if named is None and part == "feature_extractor":
        return files.lookup(_OF_CONFIG)[1]
    if named is None and part == "video_processor":
        image = _field(files, part, "image_processor_type")
        namesake = _renamed(image, "ImageProcessor", "Video")
        return namesake if is_video_processor(namesake) else None
    if named is None:
        named = _renamed(_field(files, part, "feature_extractor_type"), "FeatureExtractor", "Image")
    is_legacy = part == "image_processor" and isinstance(named, str)
    return str(named).removesuffix("Fast") if is_legacy else named


def is_video_processor(name: object) -> bool:
    """Whether transformers has a video processor of this name."""
    return name in _VIDEO_PROCESSORS


def _field(files: ModelFiles, part: Part, name: str) -> JsonValue:
    return files.lookup(files.effective(FieldRef(part, (name,))))[1]


def _renamed(name: JsonValue, ending: str, kind: str) -> JsonValue:
    return name.replace(ending, f"{kind}Processor") if isinstance(name, str) else name
