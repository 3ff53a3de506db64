"""Makes the rules of each modality that a model takes, from the spec of its family."""

from __future__ import annotations

import functools
import json
import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from mmroute.engine import Engine
from mmroute.errors import InexactError, ModelError, Reason, quoted
from mmroute.families.lookup import Lookup
from mmroute.families.media import MediaSpec
from mmroute.families.processors import (
    find_processor,
    is_video_processor,
    named_processor,
    own_processor,
)
from mmroute.families.spec import FamilySpec
from mmroute.geometry import CachePlan, Geometry, Overrides
from mmroute.geometry.arguments import Arguments
from mmroute.geometry.frame_sampling import BY_PROCESSOR, SAMPLED_TYPES, Sampler
from mmroute.geometry.geometry import RefusedItems
from mmroute.geometry.grid import AnyGrid, max_embeds
from mmroute.geometry.registry import GRIDS, LAYOUTS
from mmroute.model.resolved import MediaRules
from mmroute.model.values import Values
from mmroute.model.words import resolve_words
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles
from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_MOST_OVERRIDES: Final = 16
_LONGEST_OVERRIDES: Final = 1024  # bytes
_WITHOUT_REFERENCES: Final = 2  # a version of marshal's format: equal values are equal bytes


def overriding(own: Geometry, engine: Engine) -> Callable[[Overrides], Geometry]:
    """A model's geometry under the overrides of requests to an engine."""

    def changed(overrides: Overrides) -> Geometry:
        processor = engine.processor_kwargs(overrides.processor)
        if not processor and not overrides.media_io:
            return own
        return own.with_overrides(Overrides(processor, overrides.media_io))

    @lru_cache(maxsize=_MOST_OVERRIDES)
    def known(written: bytes) -> Geometry:
        return changed(Overrides(*marshal.loads(written)))  # noqa: S302  # written below

    def overridden(overrides: Overrides) -> Geometry:
        """Most requests repeat the overrides of others. Written down, true differs from 1."""
        pair: Any = overrides.processor, overrides.media_io
        try:
            written = marshal.dumps(pair, _WITHOUT_REFERENCES)
        except ValueError:  # nested too deeply, or of types that JSON has not
            return changed(overrides)
        return known(written) if len(written) <= _LONGEST_OVERRIDES else changed(overrides)

    return overridden


def configured_geometry(
    own: Geometry, overridden: Callable[[Overrides], Geometry], engine: Engine
) -> Geometry:
    """The geometry of requests without overrides of their own."""
    modality = own.accepts.modality
    media_io = engine.media_io(modality)
    try:
        overridden(Overrides({}, media_io))  # chats have these, and prompts have not
        return overridden(Overrides({}, {}))
    except InexactError as inexact:
        options = "--mm-processor-kwargs or --media-io-kwargs"
        if modality is Modality.IMAGE:
            message = f"{options}: {inexact}"
            raise ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message) from inexact
        return replace(own, grid=RefusedItems(f"{options}: {inexact}"))


_DTYPES: Final = [
    FieldRef.parse(f"config.json:{where}{name}")
    for where in ("", "text_config.")
    for name in ("dtype", "torch_dtype")
]
_SAMPLED_BY: Final = [
    FieldRef(file, ("video_processor_type",))
    for file in ("video_preprocessor_config.json", "preprocessor_config.json")
]
_OF_ITEMS: Final = (
    Reason.CONTRADICTORY_CONFIG, Reason.INVALID_CONFIG_FIELD, Reason.MISSING_CONFIG_FIELD,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaResolver:
    """Works out how the items of a model are counted, written and named."""

    files: ModelFiles
    family: FamilySpec
    engine: Engine  # the engine, under its settings
    values: Values  # reads the values of the spec, and notes the origin of each
    tokenizer: Tokenizer
    tokens: Mapping[str, int]  # the IDs of the tokens that the spec names

    def resolve(self, max_model_len: int) -> Mapping[Modality, MediaRules]:
        """The rules of each modality that the model takes."""
        if not self.family.media:
            self.values.note("images", "refused", "the engine takes only text for this family")
        self._check_video_class()
        media: dict[Modality, MediaRules] = {}
        for modality, spec in self.family.media.items():
            images = media.get(Modality.IMAGE)  # which come first, if there are any
            planned = (images.max_embeds, images.max_items > 0) if images else (0, False)
            plan = CachePlan(max_model_len, *planned, self._encode)
            try:
                if self._taken(modality, spec):
                    media[modality] = self._media_rules(modality, spec, plan)
            except ModelError as error:  # the engine answers other requests as ever
                if error.reason not in _OF_ITEMS:
                    raise
                self.values.within = ""
                left_out = self.family.media if self.family.together else [modality]
                for one in left_out:
                    self.values.note(f"{one}s", "refused", str(error))
                if self.family.together:
                    return {}
        return media

    def uncovered(self, media: Mapping[Modality, MediaRules]) -> Mapping[Modality, str]:
        """The modalities that the engine takes, or may take, and that are not among `media`."""
        refused = {o.name: o.source for o in self.values.origins if o.value == "refused"}
        why = {one: refused.get(f"{one}s", "") for one in Modality}
        specs = self.family.media.items()
        read = {one for one, spec in specs if spec.processors or spec.ids or why[one]}
        taken = {*self.family.uncovered, *read}
        most = self.engine.limits.max_items
        return {one: why[one] for one in sorted(taken - media.keys()) if most[one]}

    def _encode(self, text: str) -> TokenIds:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _taken(self, modality: Modality, spec: MediaSpec) -> bool:
        """Whether a model has what the rules of a modality hold for."""
        needs = self.files.effective(spec.needs) if spec.needs else None
        if needs is not None and self.files.lookup(needs)[1] in (None, False):
            return False
        for name, lookup in spec.ids.items():
            token_id = self.tokens.get(name, self.tokenizer.token_id(name))
            if (found := self.values.find(name, lookup)) != token_id:
                self.values.note(f"{modality}s", "refused", f"the ID of {name} is {found}")
                return False
        self._check_class(spec)
        image, video = self.family.image, self.family.video
        if modality is Modality.VIDEO:
            if image is not None:
                self._check_class(image)  # of whose patches some videos are counted
        elif video is not None and named_processor(self.files, "video_processor") is None:
            self._check_class(video)  # without which the engine makes no processor
        return True

    def _check_class(self, spec: MediaSpec) -> None:
        if not spec.processors or spec.whatever_named:
            return
        part = find_processor(spec.processors[0]).part
        named = named_processor(self.files, part)
        untyped = self.files.object("config.json").get("model_type") in spec.untyped
        if named not in spec.processors and (named is not None or untyped):
            what = "no class" if named is None else f"the class {quoted(named)}"
            remedy = ""
            if named is not None and named == own_processor(self.files, part):
                remedy = " Where the engine does not trust the model's code, take out auto_map."
            raise ModelError(
                Reason.INVALID_CONFIG_FIELD,
                f"{self.files.name}: its files name {what} for the {part}. The family "
                f"{self.family.family} was compared with {' or '.join(spec.processors)}.{remedy}",
            )

    def _check_video_class(self) -> None:
        """Refuse a class that transformers does not have: the engine does not start with it."""
        named = named_processor(self.files, "video_processor")
        video = self.family.video
        if video is not None and named is not None and not is_video_processor(named):
            self._check_class(video)

    def _media_rules(self, modality: Modality, spec: MediaSpec, plan: CachePlan) -> MediaRules:
        self.values.within = "" if modality is Modality.IMAGE else f"{modality}."
        self._check_fields(spec)
        own = self._geometry(modality, spec)
        overridden = overriding(own, self.engine)
        target = self._target(spec)
        geometry = configured_geometry(own, overridden, self.engine)
        most_embeds = self._max_embeds(modality, self._planned(spec, own, geometry), plan)
        self.values.within = ""
        most = self.engine.limits.max_items[modality]
        return MediaRules(
            geometry,
            overridden,
            target,
            most_embeds,
            max_items=most if spec.max_items is None else min(most, spec.max_items),
            only_in_chats=spec.only_in_chats,
            identity=spec.identity,
            identity_flag=spec.identity_flag,
            refused=self.engine.refused_media(modality),
        )

    def _target(self, spec: MediaSpec) -> tuple[int, ...]:
        """The token IDs of a placeholder in the un-expanded prompt; empty if it has none."""
        if spec.target is not None:
            token_id = self.tokens[spec.target]
            self.values.note("chat_placeholder_id", token_id, f"the {spec.target} token")
            return (token_id,)
        if spec.target_text is None:
            word = spec.layout.values.get("target", Lookup()).default
            self.values.note("chat_placeholder", word, "family spec")
            return ()
        text = self.values.required("chat_placeholder_text", spec.target_text)
        if not isinstance(text, str) or not text:
            raise self.values.invalid("chat_placeholder_text", text, "a text")
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False).tolist())
        self.values.note("chat_placeholder_ids", list(ids), f"encoded {text!r}")
        return ids

    def _check_fields(self, spec: MediaSpec) -> None:
        """Refuse values of the processor's file with which counts were not compared."""
        for ref, condition in spec.only.items():
            place = self.files.effective(ref)
            found = self.files.lookup(FieldRef(place.file, place.path[:-1]))[1]
            fields, name = found if isinstance(found, dict) else {}, place.path[-1]
            if not condition.holds(name, fields):
                raise self._not_covered(place, fields.get(name), str(condition))

    def _not_covered(self, place: FieldRef, value: JsonValue, wanted: str) -> ModelError:
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: {place} must be {wanted} for the family {self.family.family}, "
            f"found {quoted(value)}.",
        )

    def _planned(self, spec: MediaSpec, own: Geometry, geometry: Geometry) -> Geometry:
        """The geometry of the items with which the engine plans."""
        if spec.planned_by is None or isinstance(geometry.grid, RefusedItems):
            return geometry
        numbers = {}
        for name, number in spec.planned_by.items():
            value: object = self.engine.processor_kwargs({})
            for key in name.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            if type(value) is int:
                numbers[number] = value
        grid: Any = own.grid
        return replace(own, grid=replace(grid, **numbers))

    def _max_embeds(self, modality: Modality, geometry: Geometry, plan: CachePlan) -> int:
        """Count the largest item once: values that make no sense together fail here."""
        try:
            count = max_embeds(geometry.grid, plan)
        except (InexactError, ArithmeticError, ValueError) as error:
            raise self._senseless(modality, geometry, str(error)) from error
        if count < 1:
            raise self._senseless(modality, geometry, f"no {modality} has a token")
        self.values.note(f"max_features_per_{modality}", count, "the grid")
        return count

    def _senseless(self, modality: Modality, geometry: Geometry, why: str) -> ModelError:
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: its {modality} values make no sense together: {why}: {geometry}.",
        )

    def _geometry(self, modality: Modality, spec: MediaSpec) -> Geometry:
        self.values.note("grid", spec.grid.name, "family spec")
        self.values.note("layout", spec.layout.name, "family spec")
        grid = self._grid(spec)
        words = resolve_words(spec, self.tokenizer, self.tokens, self.values, modality)
        layout = LAYOUTS.find(spec.layout.name)(**words)
        rules = spec.metadata_rules(self._dtype())
        listed = {one: other.arguments for one, other in self.family.media.items()}
        return Geometry(grid, layout, Arguments(modality, listed), rules)

    def _dtype(self) -> str | None:
        """The type that the engine computes with; None where a GPU decides, as for float32.

        Source: vLLM ``transformers_utils/model_arch_config_convertor.py`` (`get_torch_dtype`).
        """
        if self.engine.dtype is not None:
            return self.engine.dtype
        found = (self.files.lookup(ref)[1] for ref in _DTYPES)
        dtype = next((one for one in found if one is not None), None)
        return dtype if dtype in ("bfloat16", "float16") else None

    def _grid(self, spec: MediaSpec) -> AnyGrid:
        values: dict[str, Any] = {}
        needed = GRIDS.fields(spec.grid.name)
        for name, lookup in spec.grid.values.items():
            has_fallback = (
                lookup.default is not None or bool(lookup.by_model_type) or lookup.optional
            )
            read = self.values.find if has_fallback and not needed[name] else self.values.required
            value: Any = read(name, lookup)
            if value is None:
                continue  # the grid's own default
            read_number = lookup.sources and type(value) in (int, float)
            if read_number and value <= 0 and not lookup.signed:
                raise self.values.invalid(name, value, "positive")
            values[name] = value
        if "sampler" in values:
            values["sampler"] = self._sampler(values["sampler"])
        try:
            # As JSON, so that a list may become a tuple, and strictly otherwise.
            adapter = _adapter(GRIDS.find(spec.grid.name))
            return adapter.validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            wanted = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            if not first["loc"]:
                raise ModelError(
                    Reason.INVALID_CONFIG_FIELD,
                    f"{self.files.name}: {spec.grid.name} needs {wanted}, found {quoted(values)}.",
                ) from error
            name = str(first["loc"][0])
            raise self.values.invalid(name, values.get(name), wanted) from error

    def _sampler(self, own: str) -> str:
        """The sampler of videos: the engine's for the class that a file or the model type names.

        Source: vLLM ``transformers_utils/processor.py``
        (`get_video_processor_cls_name_from_config`). It reads no other file, and also takes null.
        """
        for ref in _SAMPLED_BY:
            present, named = self.files.lookup(ref)
            if present or self.files.has_null(ref):
                sampler = BY_PROCESSOR.get(str(named), Sampler.OPENCV)
                self.values.note("sampler", sampler, str(ref))
                if sampler is None:
                    raise self._not_covered(ref, named, "a class whose sampler is covered")
                return sampler
        model_type = self.files.object("config.json").get("model_type")
        return own if model_type in SAMPLED_TYPES else Sampler.OPENCV


@functools.cache
def _adapter(grid: type[AnyGrid]) -> TypeAdapter[AnyGrid]:
    """The validator of a grid's values. Making one takes as long as all other rules of a model."""
    return TypeAdapter(grid)
