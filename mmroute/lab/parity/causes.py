"""Finds options that the engine has and mmroute was not told, by trying one after the other.

It does not reason about a difference: of a table of changes of one option, the one is kept that
makes most answers equal, and then the others are tried beside it. Values that the engine's events
and its server tell are taken first.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias, cast

from mmroute.cli.output import show_progress
from mmroute.engines.running import RunningEngine
from mmroute.errors import MmrouteError
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.model.resolve import resolve_model, with_same_prompts
from mmroute.model.resolved import ResolvedModel
from mmroute.reuse.fast_paths import REFERENCE_ONLY

Compare: TypeAlias = Callable[[ResolvedModel], Iterable[Finding]]
"""Compares a model of other settings with the same answers."""

_ROUNDS: Final = 4
_AGREED: Final = (Verdict.EQUAL, Verdict.REFUSED)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one option."""

    name: str  # the option or variable
    value: object  # "" for an option without one, and None to take it out of the line
    fields: Mapping[str, Any]  # the fields of the settings that it changes
    backend: str = ""  # the engine and version, if the change is of these; else empty
    kind: type[Any] | None = None  # the class of the settings, if the change is of that

    def __str__(self) -> str:
        if self.value is None:
            return f"take {self.name} out of the line"
        if self.value == "":
            return self.name
        between = " " if self.name.startswith("-") else "="
        return f"{self.name}{between}{shlex.quote(str(self.value))}"


ChangesOf: TypeAlias = Callable[
    [ResolvedModel, Iterable[Finding], RunningEngine | None], Iterable[Change]
]
"""The changes of one option to try, those first whose values the engine tells."""


def proposal(
    model: ResolvedModel,
    findings: Sequence[Finding],
    compare: Compare,
    changes_of: ChangesOf,
    *,
    running: RunningEngine | None = None,
    told: Sequence[Change] = (),
) -> str:
    """A sentence with the options that make more answers equal; empty if none does.

    What the engine's events tell is taken as it is, and of `changes_of` one after the other is
    tried.
    """
    agreed = best = _num_agreed(findings)
    if not any(map(_is_wrong, findings)):
        return ""
    kept: list[Change] = []
    found = findings
    if told and (under_told := _tried(model, told, compare)):
        kept, found, best = [*told], under_told, _num_agreed(under_told)
    for _ in range(_ROUNDS):
        better: tuple[list[Change], Sequence[Finding]] | None = None
        table = {str(change): change for change in changes_of(model, found, running)}
        for change in table.values():
            if not any(map(_is_wrong, better[1] if better else found)):
                break
            changes = [*(each for each in kept if each.name != change.name), change]
            tried = _tried(model, changes, compare)
            if tried and _num_agreed(tried) > best:
                best, better = _num_agreed(tried), (changes, tried)
        if better is None:
            break
        kept, found = better
    if best <= agreed:
        return ""
    decided = best + sum(map(_is_wrong, found))
    return f"proposed: {_listed(kept)}; with these {best} of {decided} would be equal"


def _is_wrong(finding: Finding) -> bool:
    return finding.verdict in (Verdict.SILENT, Verdict.UNNEEDED)


def _num_agreed(findings: Iterable[Finding]) -> int:
    return sum(finding.verdict in _AGREED for finding in findings)


def _tried(
    model: ResolvedModel, changes: Sequence[Change], compare: Compare
) -> Sequence[Finding] | None:
    """The findings under other settings; None if the model cannot be loaded with them."""
    show_progress(f"trying {_listed(changes)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about settings that nobody gave
            return list(compare(_changed(model, changes)))
    except MmrouteError:
        return None
    finally:
        show_progress("")


def _changed(model: ResolvedModel, changes: Sequence[Change]) -> ResolvedModel:
    backend, settings = model.engine.release.backend, cast("Any", model.settings)
    for change in changes:
        backend = change.backend or backend
        if change.kind is not None:
            own = {field.name: getattr(settings, field.name) for field in fields(settings)}
            settings = change.kind(**own)
        settings = replace(settings, **change.fields)
    renamed = any("model" in change.fields for change in changes)
    model_id = None if renamed else model.model_id
    accepted = model.engine.release.version
    same = with_same_prompts(model, backend, model_id, settings, accepted)
    return same or resolve_model(
        model.name,
        backend=backend,
        model_id=model_id,
        revision=model.commit,
        fast_paths=REFERENCE_ONLY,
        engine_settings=settings,
        accept_version=accepted,
    )


def _listed(changes: Sequence[Change]) -> str:
    """Variables and options as they stand in a line, and then those to take out of it."""
    added = [change for change in changes if change.value is not None]
    added.sort(key=lambda change: change.name.startswith("-"))
    taken_out = [str(change) for change in changes if change.value is None]
    return ", ".join(filter(None, [" ".join(map(str, added)), *taken_out]))
