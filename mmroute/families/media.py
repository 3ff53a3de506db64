"""The table of a family spec for the items of one modality."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from mmroute.errors import did_you_mean
from mmroute.families.lookup import Conditions, Ref, Strict, Value
from mmroute.geometry.arguments import Argument
from mmroute.geometry.metadata import FIELD_TYPES, OF_GRIDS, VALUES, FieldRule
from mmroute.geometry.registry import GRIDS, LAYOUTS
from mmroute.plugins import Registry
from mmroute.requests.items import IdentityFlag, IdentityForm


def _as_argument(accepted: object) -> object:
    """An argument that is written shortly: what it changes.

    >>> _as_argument("max_tiles")
    {'sets': ('max_tiles',)}
    """
    if isinstance(accepted, str | list):
        accepted = {"sets": accepted}
    if isinstance(accepted, Mapping) and isinstance(accepted.get("sets"), str):
        accepted = {**accepted, "sets": (accepted["sets"],)}
    return accepted


def _as_field(field: object) -> object:
    """A field of metadata that is written shortly: the name of its value."""
    return {"value": field} if isinstance(field, str) else field


class Named(Strict):
    """A grid or a layout by its name, and its own values, which stand beside `name`."""

    name: str
    values: Mapping[str, Value] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_values(cls, table: Any) -> Any:
        return named_table(table) if isinstance(table, str | Mapping) else table

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = written(self)
        return {"name": table["name"], **table.get("values", {})}


def named_table(table: str | Mapping[str, Any]) -> dict[str, Any]:
    """The name and the values of a grid or layout, which may be written as its name alone.

    >>> named_table({"name": "fill", "fill": "{image}"})
    {'values': {'fill': '{image}'}, 'name': 'fill'}
    """
    if isinstance(table, str):
        return {"name": table}
    named = {"values": {key: value for key, value in table.items() if key != "name"}}
    return named | {"name": table["name"]} if "name" in table else named


class MediaSpec(Strict):
    """The rules for items of one modality: how they are counted, written and placed."""

    target: str | None = None
    """A token of the spec whose place an item takes."""
    target_text: Value | None = None
    """A text of several tokens whose place an item takes, if there is no `target`."""
    chat_text: str | None = None
    """What a chat gets for an item if its template takes texts; ``{n}`` is the item's number."""
    needs: Ref | None = None
    """A place in the files. For a model without it, or with false there, the engine takes no such
    items."""
    ids: Mapping[str, Value] = Field(default_factory=dict)
    """A token of the spec, or its text -> where the engine reads its ID. Items of a model that has
    another ID there are not covered."""
    processors: tuple[str, ...] = ()
    """The classes of processors that the table was proved with; see
    `mmroute.families.processors`. The first is that of the model's type. With another, such as one
    of the model's own code, a model is refused, or its videos are. Without `processors` the engine
    loads none for such items."""
    untyped: tuple[str, ...] = ()
    """Model types for which transformers has no such class, so that their files must name one."""
    whatever_named: bool = False
    """Whether the engine loads the first of `processors` whatever class the files name."""
    only: Conditions = Field(default_factory=dict)
    """Field, or several with spaces between -> what it may hold: `values` or a `kind` alone, or a
    table of these. Items of a model where it holds else are not covered."""
    idle: tuple[Ref, ...] = ()
    """Fields that change no count, whatever the class's table says of them in `only`."""
    grid: Named
    """The grid, which counts an item's tokens, and its numbers; see `mmroute.geometry.registry`."""
    layout: Named = Named(name="fill")
    """The layout, which writes what stands in an item's place, and its words: tokens and texts; see
    `mmroute.model.words`."""
    accepts: Annotated[
        Mapping[str, Annotated[Argument, BeforeValidator(_as_argument)]],
        BeforeValidator(lambda table: {} if table is False else table),
    ] = Field(default_factory=dict)
    """The arguments of requests that are followed, and what each changes; any other is refused.
    False where the family's own processor takes none of those of the class."""
    planned_by: Mapping[str, str] | None = None
    """The arguments in the engine's settings that change the item it plans its encoder cache with,
    as ``size.longest_edge``, each with the grid's number that it changes in the plan. Without this
    table, those that change counts change the plan as well."""
    metadata: Mapping[str, Annotated[FieldRule, BeforeValidator(_as_field)]] | None = None
    """The fields that the engine's processor returns beside tensors, in its order. Without this
    table they were not compared."""
    max_items: int | None = None
    """The most items in one prompt, if the engine takes fewer than of other families."""
    only_in_chats: bool = False
    """Whether the engine refuses items beside a prompt that is no chat."""
    identity: IdentityForm = IdentityForm.FILE
    """What the engine hashes of an item without a uuid."""
    identity_flag: IdentityFlag | None = None
    """What the engine hashes in addition, for each item."""

    def metadata_rules(self, model_dtype: str | None) -> Mapping[str, FieldRule] | None:
        """How the metadata of an item is made."""
        if self.metadata is None:
            return None
        dtypes = {"model": model_dtype or "model"}
        return {
            name: replace(rule, dtype=dtypes.get(rule.dtype, rule.dtype))
            for name, rule in self.metadata.items()
        }

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """The arguments of requests that are followed, by name."""
        types = GRIDS.types(self.grid.name)
        return {name: argument.of_type(types) for name, argument in self.accepts.items()}


def media_problems(
    modality: str, media: Mapping[str, Any], tokens: Collection[str], *, placement: str
) -> Iterator[tuple[str, str]]:
    """Find missing values in the table of a modality, and values unknown to its grid or layout."""
    grid, values = _name_and_values(media.get("grid"))
    layout, words = _name_and_values(media.get("layout", "fill"))
    unknown = [*_unknown(grid, GRIDS), *_unknown(layout, LAYOUTS)]
    if unknown:
        yield from unknown
        return
    yield from _target_problems(media, words, tokens, placement=placement)
    numbers = GRIDS.fields(str(grid))
    yield from _field_problems("grid", values, numbers, f"the grid {grid}")
    own_words = {**LAYOUTS.fields(str(layout))}
    if modality in tokens and LAYOUTS.types(str(layout))["fill"] is int:
        own_words["fill"] = False
    written = " ".join(map(str, words.values()))
    named = [word for word in words if word in own_words or f"{{{word}}}" not in written]
    yield from _field_problems("layout", named, own_words, f"the layout {layout}")
    for name, accepted in (media.get("accepts") or {}).items():
        try:
            argument = _ARGUMENT.validate_python(_as_argument(accepted))
        except ValidationError:
            continue  # which is told of the field itself
        yield from _number_problems(f"accepts.{name}", argument.changed_fields, grid)
    planned_by = media.get("planned_by")
    for name, number in planned_by.items() if isinstance(planned_by, Mapping) else ():
        yield from _number_problems(f"planned_by.{name}", {str(number)}, grid)
    for name, field in (media.get("metadata") or {}).items():
        table = field if isinstance(field, Mapping) else {"value": field}
        for key, known in (("value", VALUES), ("dtype", FIELD_TYPES)):
            if key in table and str(table[key]) not in known:
                hint = did_you_mean(str(table[key]), known)
                yield f"metadata.{name}", f"{key} must be one of {', '.join(sorted(known))}{hint}"
        value = table.get("value")
        needed = OF_GRIDS.get(str(value))
        if needed is not None and not hasattr(GRIDS.find(str(grid)), needed):
            yield f"metadata.{name}", f"the grid {grid} cannot give {value}: it has no {needed}"


_ARGUMENT: Final = TypeAdapter(Argument)


def _name_and_values(table: object) -> tuple[object, Mapping[str, Any]]:
    if not isinstance(table, str | Mapping):
        return table, {}
    named = named_table(table)
    return named.get("name"), named.get("values", {})


def _number_problems(
    where: str, changed: Collection[str], grid: object
) -> Iterator[tuple[str, str]]:
    numbers = GRIDS.fields(str(grid))
    for name in changed:
        if name not in numbers:
            hint = did_you_mean(name, numbers) or f"; it has {', '.join(numbers)}"
            yield where, f"the grid {grid} has no {name}{hint}"


def _unknown(name: object, registry: Registry) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str) or name not in registry.entries:
        known = registry.entries
        hint = did_you_mean(str(name), known)
        listed = f"must be one of {', '.join(sorted(known))}{hint}"
        yield registry.kind, f"{listed}; one of a package of your own must be installed before"


def _field_problems(
    table: str, given: Collection[str], fields: Mapping[str, bool], whose: str
) -> Iterator[tuple[str, str]]:
    for name in given:
        if name not in fields:
            near = did_you_mean(name, fields) or f"; it has {', '.join(fields)}"
            yield f"{table}.{name}", f"{whose} has no such value{near}"
    for name, needed in fields.items():
        if needed and name not in given:
            yield f"{table}.{name}", f"{whose} needs it"


def _target_problems(
    media: Mapping[str, Any],
    words: Mapping[str, Any],
    tokens: Collection[str],
    *,
    placement: str,
) -> Iterator[tuple[str, str]]:
    target, chat_text = media.get("target"), media.get("chat_text")
    given = [target, media.get("target_text"), words.get("target")]
    count = sum(one is not None for one in given)
    if placement == "rendered" and count:
        yield "target", "must be absent: the renderer puts items in, and nothing is searched for"
    elif count > 1 or (not count and placement not in ("rendered", "start")):
        yield "target", "must be given, or else one of target_text and layout.target"
    if isinstance(target, str) and target not in tokens:
        hint = did_you_mean(target, tokens)
        yield "target", f"must be one of the tokens {', '.join(tokens)}{hint}"
    numbered = "{n}" in str(words.get("target"))
    if numbered and isinstance(chat_text, str) and "{n}" not in chat_text:
        yield "chat_text", "must have {n}, the item's number"
