"""Processor classes: the fields that each reads, once for all families that load it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from mmroute.errors import SpecError, did_you_mean, problem
from mmroute.families.lookup import Strict, by_field
from mmroute.families.overlays import overlaid
from mmroute.families.sources import spec_folders, toml_files
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles

_FOLDER: Final = "processors"
Part: TypeAlias = Literal["image_processor", "video_processor", "feature_extractor"]
_MODALITIES: Final = ("image", "video", "audio")
_CLASS: Final[Mapping[Part, str]] = {
    "image_processor": "ImageProcessor",
    "video_processor": "VideoProcessor",
    "feature_extractor": "FeatureExtractor",
}
_OLDER: Final[Mapping[Part, Part]] = {
    "image_processor": "feature_extractor",
    "video_processor": "image_processor",
}
"""Part -> the part whose class older files name in its place."""
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
    """The class whose `idle` fields are idle here as well, and whose `only` holds for fields of
    which this table does not say that they are idle, or what else they may hold."""
    idle: tuple[str, ...] = ()
    """Fields that change no count."""
    only: Annotated[Mapping[str, Any], BeforeValidator(by_field)] = Field(default_factory=dict)
    """As in the table of a modality, of fields of this part."""
    grid: Mapping[str, Any] = Field(default_factory=dict)
    """As in the table of a modality, like the fields below. A number without `from` is the field of
    its own name, and the default of one without `note` is the class's."""
    accepts: Any = None
    """The arguments of requests that the class takes."""
    metadata: Any = None
    """What the class returns beside tensors."""

    def media(self) -> dict[str, Any]:
        """The part of a modality's table that the class decides."""
        table = self.model_dump(exclude_unset=True, exclude={"name", "part", "base"})
        return table | {
            "grid": {name: self._value(name, value) for name, value in self.grid.items()},
            "only": {self._place(name): what for name, what in self.only.items()},
            "idle": [self._place(name) for name in self.idle],
        }

    def over(self, below: ProcessorSpec) -> ProcessorSpec:
        """This table, laid over that of its base."""
        kept = {name: what for name, what in below.only.items() if name not in self.idle}
        update = {"idle": (*below.idle, *self.idle), "only": {**kept, **self.only}}
        return self.model_copy(update=update)

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
    """The table of a class of processors."""
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
    """A family's table, laid over those of the classes that it was proved with."""
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
            idle = media.get("idle", ())
            only = {name: what for name, what in of_class["only"].items() if name not in idle}
            only |= by_field(media.get("only", {}))
            completed[modality] = overlaid(of_class, media) | {"only": only}
    return completed


def named_processor(files: ModelFiles, part: Part) -> object:
    """The class that the files name for a part; None leaves it to the model's type.

    A video processor without a name is the namesake of the image processor, if there is one. A
    class of the model's own code comes first, as in an engine that trusts the code.

    Source: transformers ``models/auto/image_processing_auto.py``, ``video_processing_auto.py`` and
    ``feature_extraction_auto.py`` (`from_pretrained`).
    """
    older = _OLDER.get(part, part)
    named = _field(files, part, f"{part}_type")
    if own := own_processor(files, part, fallback=named is None):
        return own
    if named is None and part == "feature_extractor":
        return files.lookup(_OF_CONFIG)[1]
    if named is None:
        named = _renamed(_field(files, part, f"{older}_type"), part)
        if part == "video_processor":
            return named if is_video_processor(named) else None
    is_legacy = part == "image_processor" and isinstance(named, str)
    return str(named).removesuffix("Fast") if is_legacy else named


def own_processor(files: ModelFiles, part: Part, *, fallback: bool = True) -> object:
    """The class of the model's own code that ``auto_map`` names for a part, if it names one."""
    own, of_older = (f"Auto{_CLASS[one]}" for one in (part, _OLDER.get(part, part)))
    found = _field(files, part, "auto_map", own)
    if found is None and fallback:
        of_config = files.lookup(FieldRef("config.json", ("auto_map", own)))[1]
        found = of_config or _renamed(_field(files, part, "auto_map", of_older), part)
    return found.rpartition(".")[2] if isinstance(found, str) else found


def is_video_processor(name: object) -> bool:
    """Whether transformers has a video processor of this name."""
    return name in _VIDEO_PROCESSORS


def _field(files: ModelFiles, part: Part, *path: str) -> JsonValue:
    return files.lookup(files.effective(FieldRef(part, path)))[1]


def _renamed(name: JsonValue, part: Part) -> JsonValue:
    """The namesake, for a part, of a class of the part that older files name."""
    older = _CLASS[_OLDER.get(part, part)]
    return name.replace(older, _CLASS[part]) if isinstance(name, str) else name


_PREPROCESSORS: Final = (
    ("image_processor", "preprocessor_config.json"),
    ("video_processor", "video_preprocessor_config.json"),
)


def named_class(files: ModelFiles) -> tuple[JsonValue, bool]:
    """The class that the files name, and whether the last file read names code of the model."""
    places = [FieldRef("processor_config.json", ())]
    places += [FieldRef(part, ()) for part, file in _PREPROCESSORS if files.has(file)][:1]
    places += [FieldRef("tokenizer_config.json", ()), FieldRef("config.json", ())]
    is_code = False
    for place in places:
        found = files.effective(place)
        content = files.lookup(found)[1] if found.path else files.object(found.file)
        of_file: Any = content if isinstance(content, dict) else {}
        is_code = is_code or "AutoProcessor" in (of_file.get("auto_map") or {})
        if (name := of_file.get("processor_class")) is not None:
            return name, is_code
    return None, is_code
