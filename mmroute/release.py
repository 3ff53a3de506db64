"""The releases of an engine, and the eras that answer for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

from mmroute.errors import ModelError, Reason, did_you_mean

PYTHON: Final = "python"
"""The usual API server in front of an engine."""


@dataclass(frozen=True, slots=True)
class Release:
    """One engine in one range of versions."""

    name: str  # the engine's name, as in `backend`
    version: str  # the version on which the answers were checked
    era: str  # the versions between which nothing observable changed
    prompts: str  # releases with the same text here make the same token IDs of texts and chats
    proved: frozenset[str]  # the versions whose own code gave these answers
    # The other releases of the era, whose code was read and not run.
    read: frozenset[str] = frozenset()
    frontend: str = PYTHON  # the API server in front of the engine
    # Whether nobody compared this version, and the rules are those of the nearest era.
    unproved: bool = False

    @property
    def backend(self) -> str:
        """The name by which `find_engine` finds this version."""
        return f"{self.name}=={self.version}"

    @property
    def label(self) -> str:
        """The engine and its version, and the frontend if it is not the usual one."""
        plain = f"{self.name} {self.version}"
        return plain if self.frontend == PYTHON else f"{plain}, {self.frontend} frontend"


class Era(Protocol):
    """What answers for the releases of an era: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def release(self) -> Release:
        """The releases, and the one of them that is matched."""


EraT = TypeVar("EraT", bound=Era)


def era_of(title: str, version: str, eras: Sequence[EraT]) -> EraT:
    """The era of a release such as ``0.28.0``, or of all releases of ``0.28`` if it is one.

    `eras` are those of one engine, the newest first: the one for an empty text. A later release
    that none names gets the nearest. Raises `ModelError`.
    """
    if not version:
        return eras[0]
    releases = {name: era for era in eras for name in era.release.proved | era.release.read}
    series = [era for name, era in releases.items() if name.rpartition(".")[0] == version]
    found = releases.get(version) or (series[0] if len(set(map(id, series))) == 1 else None)
    if found is not None:
        return replace(found, release=replace(found.release, version=version))
    if not series and (nearest := nearest_era(version, eras)) is not None:
        return nearest
    known = sorted(releases, key=_numbers)
    named = [f"{eras[0].release.name}=={name}" for name in known]
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"{title} {version!r} is not known: there are the releases {known[0]} to {known[-1]}"
        f"{did_you_mean(f'{eras[0].release.name}=={version}', named)}",
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def nearest_era(version: str, eras: Iterable[EraT]) -> EraT | None:
    """The era of the last release before a version that no era names; None if there is none.

    `eras` are those of one engine, the newest first.
    """
    from packaging.version import InvalidVersion, Version  # which no known version needs

    with contextlib.suppress(InvalidVersion):
        wanted = Version(version)
        is_plain = str(wanted) == version and len(wanted.release) > 1 and not wanted.epoch
        for era in eras if is_plain else ():
            known = era.release.proved | era.release.read
            if any(Version(release) < wanted for release in known):
                release = replace(era.release, version=version, unproved=True)
                return replace(era, release=release)
    return None
