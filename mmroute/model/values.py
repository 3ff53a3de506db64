"""Looks up the values of a family spec in a model's files, and records their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mmroute.errors import ModelError, Reason, quoted
from mmroute.families.lookup import Lookup
from mmroute.model.resolved import Origin
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles

_SIZES: Final = ({"height", "width"}, {"shortest_edge", "longest_edge"})
"""The fields that stand together in a size of transformers."""
_PREPROCESSOR: Final = "preprocessor_config.json"


class Values:
    """Reads the values of one model, and notes each with its place."""

    def __init__(self, files: ModelFiles, family: str) -> None:
        self.files = files
        self.family = family  # name of its family, for messages
        self.origins: list[Origin] = []  # the values that were noted so far
        # The prefix of the names of values; empty for those of images and of the model.
        self.within = ""

    def note(self, name: str, value: Any, source: str) -> None:
        """Keep where a value came from."""
        self.origins.append(Origin(f"{self.within}{name}", value, source))

    def find(self, name: str, lookup: Lookup) -> JsonValue:
        """A value at the first of its places, or its default, or None.

        The engine takes its defaults for fields that are not in a preprocessor_config.json, and
        does not start where there is none (``AutoImageProcessor`` and ``AutoFeatureExtractor`` of
        transformers). A default is no value of a model of which that file was not copied.
        """
        places = [self.files.effective(ref) for ref in lookup.sources]
        for ref in places:
            self._check_size(ref, places)
        for ref in places:
            present, value = self._read(name, ref, lookup)
            if present:
                if lookup.floats and isinstance(value, float) and value.is_integer():
                    value = int(value)
                self.note(name, value, str(ref))
                self.agree(f"{ref} is {value!r}", value, lookup.equals)
                return self._named(name, value, lookup)
        default: JsonValue = lookup.default_for(self._model_type(places))
        if default is not None:
            if any(r.file == _PREPROCESSOR and not self.files.has(r.file) for r in places):
                raise ModelError(
                    Reason.MISSING_FILE,
                    f"{self.files.name}: {self.files.root} has no {_PREPROCESSOR}, without which "
                    f"the engine does not start a model of family {self.family}; copy it from the "
                    "model's repository.",
                )
            note = f": {lookup.note}" if lookup.note else ""
            self.note(name, default, f"default{note}")
        return default

    def _model_type(self, places: Iterable[FieldRef]) -> JsonValue:
        """The type that stands beside the first of these places."""
        beside = (FieldRef(ref.file, (*ref.path[:-1], "model_type")) for ref in places)
        return next((value for given, value in map(self.files.lookup, beside) if given), None)

    def _read(self, name: str, ref: FieldRef, lookup: Lookup) -> tuple[bool, JsonValue]:
        """Whether a place has a value, and the value, which null may stand for."""
        present, value = self.files.lookup(ref)
        if present or lookup.null == "absent" or not self.files.has_null(ref):
            return present, value
        if lookup.null == "refused":
            self.note(name, None, str(ref))
            raise self.invalid(name, None, "a value, or missing")
        return True, lookup.null

    def _check_size(self, ref: FieldRef, places: Sequence[FieldRef]) -> None:
        """Refuse a model whose size has another form than the one that the engine reads.

        A size in a preprocessor's file replaces the processor's own as a whole, and fields that
        stand beside it, such as ``max_pixels``, are put into it. The engine does not start where
        it then lacks a side, or has sides of two forms. Source: transformers
        ``image_processing_utils.py`` (`VALID_SIZE_DICT_KEYS`).
        """
        if not any(ref.path[-1] in form for form in _SIZES):
            return
        forms = [form for form in _SIZES if any(place.path[-1] in form for place in places)]
        size = FieldRef(ref.file, ref.path[:-1])
        present, value = self.files.lookup(size)
        has_replacement = any(self.files.lookup(place)[0] for place in places)
        sides = value.keys() if isinstance(value, dict) else None
        known = sides is not None and any(sides <= form for form in forms)
        known = known or (type(value) is int and size in places)
        if present and not (has_replacement and known):
            wanted = ", or ".join([" and ".join(sorted(form)) for form in forms])
            raise ModelError(
                Reason.INVALID_CONFIG_FIELD,
                f"{self.files.name}: {size} is {quoted(value)}. The family {self.family} is "
                f"covered with {wanted} there; with other sizes the engine "
                "does not start, or counts otherwise.",
            )

    def _named(self, name: str, value: JsonValue, lookup: Lookup) -> JsonValue:
        if not lookup.names:
            return value
        values = value if isinstance(value, list) else [value]
        matching = [text for text in lookup.names if text in values]
        if len(matching) != 1:
            raise self.invalid(name, value, f"one of {', '.join(lookup.names)}")
        named: JsonValue = lookup.names[matching[0]]
        return named

    def required(self, name: str, lookup: Lookup) -> JsonValue:
        """A value that must be there."""
        value = self.find(name, lookup)
        if value is None:
            places = " or ".join(map(str, lookup.sources))
            raise ModelError(
                Reason.MISSING_CONFIG_FIELD,
                f"{self.files.name}: {name} of family {self.family} is not in {places} "
                f"(files in {self.files.root}: {', '.join(self.files.names())}).",
            )
        return value

    def integer(self, name: str, lookup: Lookup, *, default: int | None = None) -> int:
        """A non-negative integer."""
        value = self.find(name, lookup) if default is not None else self.required(name, lookup)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.invalid(name, value, "a non-negative integer")
        return value

    def invalid(self, name: str, value: object, wanted: str) -> ModelError:
        """The error of a value that was noted and cannot be used."""
        name = f"{self.within}{name}"
        source = next((o.source for o in reversed(self.origins) if o.name == name), "?")
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: {name} (from {source}) must be {wanted}, found {quoted(value)}.",
        )

    def agree(self, stated: str, value: JsonValue, places: Iterable[FieldRef]) -> None:
        """Check other places of a value."""
        for ref in map(self.files.effective, places):
            present, other = self.files.lookup(ref)
            if present and other != value:
                raise ModelError(
                    Reason.CONTRADICTORY_CONFIG,
                    f"{self.files.name}: {stated}, but {ref} says {other!r}.",
                )
