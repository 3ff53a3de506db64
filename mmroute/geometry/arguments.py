"""The arguments of a request that change how its items are counted (`mm_processor_kwargs`).

The engine hands them to the model's processors. Some change a count, some are ignored, and some
make a processor fail. This was observed for each family with vLLM and transformers, and is in its
spec (``[image.accepts]``). An argument that was not observed is refused and never guessed: by an
`InexactError` with the reason `unsupported_processor_kwargs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from mmroute.geometry.argument import Argument, Where, check_one_of
from mmroute.geometry.known_arguments import (
    HARMLESS,
    HARMLESS_OF_VIDEOS,
    HARMLESS_WITH_VIDEOS,
    OF_ALL_VIDEO_PROCESSORS,
    OF_SOME_VIDEO_PROCESSORS,
    is_count,
    is_empty,
)
from mmroute.geometry.unlisted_arguments import (
    OBJECTS,
    SCOPES,
    check_flat,
    check_foreign,
    check_unread,
    refused,
)
from mmroute.requests.items import Modality

_Grid = TypeVar("_Grid")

_SCOPES: Final = {modality: f"{modality}s_kwargs" for modality in (Modality.IMAGE, Modality.VIDEO)}
_SCOPES[Modality.AUDIO] = "audio_kwargs"


_FLAT_COUNTS: Final = (Where.FLAT_COUNTS, Where.FLAT_COUNTS_ALONE, Where.FLAT_READ)


class Others(StrEnum):
    """The treatment of arguments that the spec does not list."""

    IGNORED = "ignored"
    """Those that were seen to do no harm with a processor of transformers are ignored."""
    COMMON = "common"
    """Only those pass that every image processor of transformers knows."""
    REFUSED = "refused"
    """All are refused: the processor fails on them."""
    FOREIGN = "foreign"
    """The processor ignores names that no processor of transformers has, and fails on others."""
    UNREAD = "unread"
    """The processor reads only names of its own, but some other names make it fail."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of requests that a family's processor of one modality takes.

    Attributes:
        modality: the modality of the items.
        named: the listed arguments, by name.
        others: the treatment of all other arguments of images; those of audio are refused.
        of_videos: the counts that only this model's video processor knows. It checks
            ``videos_kwargs`` for requests with images alone, too.
        processor_reads: the names that this model's video processor reads, beside those that all
            video processors read; None if it may read any name that some processor reads.
    """

    modality: Modality
    named: Mapping[str, Argument] = field(default_factory=dict)
    others: Others = Others.IGNORED
    of_videos: tuple[str, ...] = ()
    processor_reads: tuple[str, ...] | None = None

    @property
    def unnamed(self) -> frozenset[str]:
        """The arguments that identities do not cover."""
        return frozenset(name for name, argument in self.named.items() if not argument.named)

    def with_edges(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a request, with those that the edges of other arguments give.

        Source: vLLM ``model_executor/models/qwen2_vl.py``
        (`_complete_mm_processor_size_aliases`), which comes before the merge with the engine's own.
        """
        for name, argument in self.named.items():
            if argument.edges_are_arguments:
                kwargs = _with_edges(kwargs, name, argument.edges)
        return kwargs

    def applied(self, grid: _Grid, kwargs: Mapping[str, Any]) -> _Grid:
        """A grid with the numbers that a request changes.

        Raises:
            InexactError: `unsupported_processor_kwargs`.
        """
        changes = self._changes(kwargs)
        if not changes:
            return grid
        try:
            return replace(grid, **changes)  # type: ignore[type-var]  # grids are dataclasses
        except ValueError as error:
            given = ", ".join(f"{name} {value}" for name, value in changes.items())
            raise refused("*", given, str(error)) from error

    def _changes(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        scoped = self._checked_scope(kwargs)
        given: dict[str, tuple[Argument, Any]] = {}
        for name in {**kwargs, **scoped} if scoped else kwargs:
            argument = self.named.get(name)
            if argument is not None and self._counts(name, argument, kwargs, scoped):
                given[name] = argument, scoped[name] if name in scoped else kwargs[name]
        changes: dict[str, Any] = {}
        for name, (argument, value) in given.items():
            if argument.without in given:
                raise refused(name, value, f"absent beside {argument.without}")
            changes |= dict.fromkeys(argument.sets, False if value is None else value)
        for name, (argument, value) in given.items():
            if argument.keys:  # its edges yield to arguments of their own
                changes = argument.edge_changes(name, value, changes) | changes
        return changes

    def _counts(
        self, name: str, argument: Argument, kwargs: Mapping[str, Any], scoped: Mapping[str, Any]
    ) -> bool:
        """Check the place and value of an argument, and return whether the engine counts by it."""
        flat, inside = name in kwargs, name in scoped
        if argument.where is not Where.ANYWHERE:
            self._check_place(name, argument.where, kwargs, scoped)
        if argument.where is Where.FLAT_READ:
            inside = False
        if inside or flat:
            argument.check(name, scoped[name] if inside else kwargs[name])
        if flat and argument.flat_one_of:
            check_one_of(name, kwargs[name], argument.flat_one_of)
        return not (argument.where in _FLAT_COUNTS and name in scoped)

    def _checked_scope(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments inside the object of the modality, after unlisted arguments are checked.

        A processor that reads no such object has none.
        """
        if self.others is Others.FOREIGN:
            return self._check_foreign(kwargs)
        if self.modality is Modality.VIDEO:
            return self._check_videos(kwargs)
        if self.modality is Modality.AUDIO:
            return self._check_audio(kwargs)
        return self._check_images(kwargs)

    def _check_images(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        match self.others:
            case Others.REFUSED:
                for name, value in kwargs.items():
                    if name not in self.named:
                        raise refused(name, value, "absent for this model")
                return {}
            case Others.UNREAD:
                check_unread(kwargs)
                self._check_unread_scopes(kwargs)
                return {}
            case Others.COMMON:
                known = HARMLESS.keys() | SCOPES - {"text_kwargs"}
                for name, value in kwargs.items():
                    if name not in self.named and name not in known:
                        raise refused(name, value, "absent for this model")
        return self._check_harmless(kwargs)

    def _check_harmless(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        scoped = _object(kwargs, "images_kwargs")
        for name, value in scoped.items():
            if name not in self.named and not (name in HARMLESS and HARMLESS[name](value)):
                raise refused(f"images_kwargs.{name}", value, "absent")
        for name, value in _mapping(kwargs, "videos_kwargs").items():
            accepts = is_count if name in self.of_videos else HARMLESS_OF_VIDEOS.get(name)
            if accepts is None or not accepts(value):
                raise refused(f"videos_kwargs.{name}", value, "absent")
        for name, value in kwargs.items():
            if name not in self.named and name != "images_kwargs":
                check_flat(name, value)
            elif any(
                name in _mapping(kwargs, scope) for scope in ("videos_kwargs", "audio_kwargs")
            ):
                raise refused(name, value, "given once: the engine drops what a scope repeats")
        return scoped

    def _check_videos(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse what video processors read and the spec does not list.

        The pipeline has the scope of images checked by the arguments of images.
        """
        scoped = _object(kwargs, "videos_kwargs")
        for name, value in scoped.items():
            harmless = HARMLESS_WITH_VIDEOS.get(name)
            if name not in self.named and (
                harmless is None or not harmless(value) or isinstance(value, Mapping | list)
            ):
                raise refused(f"videos_kwargs.{name}", value, "absent, where there are videos")
        others = [_mapping(kwargs, scope) for scope in SCOPES - {"videos_kwargs"}]
        for name, value in kwargs.items():
            if name in self.named or name in HARMLESS_WITH_VIDEOS:
                if any(name in other for other in others):
                    raise refused(name, value, "given once: the engine drops what a scope repeats")
            elif name in OF_ALL_VIDEO_PROCESSORS:
                raise refused(name, value, "absent, where the request has videos")
            if name not in self.named and name not in _SCOPES.values():
                self._check_flat_of_videos(name, value)
        return scoped

    def _check_flat_of_videos(self, name: str, value: object) -> None:
        if name not in OF_SOME_VIDEO_PROCESSORS:
            check_flat(name, value)
        elif self.processor_reads is None or name in self.processor_reads:
            raise refused(name, value, "absent, where the request has videos")
        elif not is_count(value):
            raise refused(name, value, "a positive integer")

    def _check_unread_scopes(self, kwargs: Mapping[str, Any]) -> None:
        for scope in SCOPES:
            for name, value in _mapping(kwargs, scope).items():
                where = self.named[name].where if name in self.named else Where.ANYWHERE
                if where is Where.OUTSIDE or (
                    where is Where.NOWHERE and scope == _SCOPES[self.modality]
                ):
                    raise refused(f"{scope}.{name}", value, "absent")

    def _check_foreign(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse unlisted names that processors of transformers have."""
        own = _SCOPES[self.modality]
        for name, value in kwargs.items():
            if name in OBJECTS:
                if not isinstance(value, Mapping):
                    raise refused(name, value, "an object")
                for inner in value:
                    if name != own or inner not in self.named:
                        raise refused(f"{name}.{inner}", value[inner], "absent for this model")
            elif name not in self.named:
                check_foreign(name, value)
        return _mapping(kwargs, own)

    def _check_audio(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse all names but the listed ones, and the scopes of other modalities."""
        scoped = _object(kwargs, "audio_kwargs")
        flat = {
            name: value
            for name, value in kwargs.items()
            if name not in _SCOPES.values() and not (name in OBJECTS and is_empty(value))
        }
        for name, value in {**scoped, **flat}.items():
            if name not in self.named:
                raise refused(name, value, "absent, where the request has audio")
        return scoped

    def _check_place(
        self, name: str, where: Where, kwargs: Mapping[str, Any], scoped: Mapping[str, Any]
    ) -> None:
        """Refuse an argument in a place where it must not be."""
        flat, inside = name in kwargs, name in scoped
        wrong = {
            Where.NOWHERE: True,
            Where.INSIDE: flat,
            Where.FLAT: inside,
            Where.ALONE: bool(scoped),
            Where.FLAT_COUNTS_ALONE: bool(scoped) and flat,
        }
        if wrong.get(where, False):
            found = scoped[name] if inside else kwargs.get(name)
            raise refused(name, found, f"{where} for this model")


def _with_edges(kwargs: Mapping[str, Any], name: str, edges: Mapping[str, str]) -> dict[str, Any]:
    """The arguments, flat and inside each scope, with those that the edges of one argument give.

    >>> _with_edges({"size": {"longest_edge": 50176}}, "size", {"longest_edge": "max_pixels"})
    {'max_pixels': 50176, 'size': {'longest_edge': 50176}}
    """
    completed = {
        key: _with_edges(value, name, edges)
        if key in SCOPES and isinstance(value, Mapping)
        else value
        for key, value in kwargs.items()
    }
    given = _mapping(kwargs, name)
    found = {number: given[edge] for edge, number in edges.items() if given.get(edge) is not None}
    return found | completed


def _object(kwargs: Mapping[str, Any], scope: str) -> Mapping[str, Any]:
    """The arguments in a scope; none if it is absent or null."""
    scoped = kwargs.get(scope)
    if scoped is None:
        return {}
    if not isinstance(scoped, Mapping):
        raise refused(scope, scoped, "an object")
    return scoped


def _mapping(kwargs: Mapping[str, Any], scope: str) -> Mapping[str, Any]:
    """The arguments in a scope; none if it is no object, which is refused elsewhere."""
    scoped = kwargs.get(scope)
    return scoped if isinstance(scoped, Mapping) else {}
