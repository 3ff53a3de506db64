"""Tables of names that other packages add to, through entry points."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, Final, get_type_hints

from mmroute.errors import SpecError

OF_ENGINES: Final[Mapping[str, Mapping[str, str]]] = {
    "mmroute.engines": {
        "sglang": "mmroute.engines.sglang.versions:find_version",
        "vllm": "mmroute.engines.vllm.versions:find_version",
        "vllm-rust": "mmroute.engines.vllm_rust.profile:find_version",
    },
    "mmroute.grids": {"kept_images": "mmroute.engines.sglang.kept_images:KeptImages"},
    "mmroute.placements": {
        "all_at_first": "mmroute.engines.sglang.exact_targets:AllAtFirst",
        "exact_in_text": "mmroute.engines.sglang.exact_targets:ExactInText",
        "exact_pads": "mmroute.engines.sglang.exact_targets:ExactPads",
        "exact_rows": "mmroute.engines.sglang.exact_targets:ExactRows",
        "exact_targets": "mmroute.engines.sglang.exact_targets:ExactTargets",
        "kept_placeholders": "mmroute.engines.sglang.kept_images:KeptPlaceholders",
        "targets_alone": "mmroute.engines.vllm_rust.targets_alone:TargetsAlone",
    },
}
"""The engines of this package and what they add, as entry points of packages do: by group."""


def entry_points(group: str) -> EntryPoints:
    """The entry points of a group, in all packages that were installed at the first call."""
    points: EntryPoints = _of_all_packages().select(group=group)
    return points


def installed(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """The entry points of a group, by name."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group):
        if point.name in taken or point.name in points:
            raise SpecError(f"{owner(point)}: {point.name!r} of {group} is already taken")
        points[point.name] = point
    return points


def load(point: EntryPoint) -> Any:
    """Import the object that an entry point names."""
    try:
        return point.load()
    except Exception as error:  # another package's code may raise any type
        raise SpecError(
            f"{owner(point)}: {point.value!r} of {point.group} cannot be imported: {error!r}"
        ) from error


def owner(point: EntryPoint) -> str:
    """The name of the distribution that has an entry point, for messages."""
    return point.dist.name if point.dist else "an installed package"


@dataclasses.dataclass(frozen=True)
class Registry:
    """Dataclasses that a spec names, ours and those of installed packages."""

    kind: str  # what they are, in one word such as `grid`
    package: str  # the package that holds ours
    own: Mapping[str, str]  # name in a spec -> `module:Class` of this package
    group: str = ""  # the group of entry points, if its name is not that of the kind

    @property
    def entry_points(self) -> str:
        """Entry point group of other packages: name in a spec -> ``module:Class``."""
        return self.group or f"mmroute.{self.kind}s"

    @cached_property
    def entries(self) -> Mapping[str, EntryPoint]:
        """The entries that a spec may name."""
        places = {name: f"{self.package}.{where}" for name, where in self.own.items()}
        places |= OF_ENGINES.get(self.entry_points, {})
        own = {name: EntryPoint(name, at, self.entry_points) for name, at in places.items()}
        return own | installed(self.entry_points, own)

    def find(self, name: str) -> Any:
        """The dataclass of a name in a family spec."""
        return load(self.entries[name])

    def types(self, name: str) -> Mapping[str, Any]:
        """The types of its fields."""
        return _types(self.find(name))

    def fields(self, name: str) -> Mapping[str, bool]:
        """The fields that it is made of: name -> whether it must be given."""
        fields = dataclasses.fields(self.find(name))
        return {f.name: f.default is dataclasses.MISSING for f in fields if f.init}


_types: Final = cache(get_type_hints)  # slow, and asked for each load of a model


@cache
def _of_all_packages() -> Any:  # of one type in Python 3.11 and of another from 3.12 on
    # Called with a group, Python reads the files of all packages again for each group.
    return importlib.metadata.entry_points()
