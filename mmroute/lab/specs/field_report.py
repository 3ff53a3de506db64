"""What a family's spec does with each field of a model's files, as far as changes showed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mmroute.lab.specs.field_changes import Change
from mmroute.lab.specs.field_checks import AGREED, WRONG

_RESULTS: Final = (
    *WRONG, "refused", "undecided", "loaded", "unanswered", "followed", "idle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldResult:
    """What the changes of one field came to."""

    place: str  # the file and the path of the field
    # ``followed``: prompts change, and mmroute's are vLLM's. ``idle``: they do not change.
    # ``unanswered``: neither of the two answers. Else a verdict: ``silent`` (exact, and not
    # vLLM's), ``accepted`` (vLLM refuses), ``refused`` (vLLM answers), ``loaded`` (vLLM does not
    # load it), ``crashed``, ``undecided``.
    result: str
    changes: list[str] = field(default_factory=list)  # the changes with this result, in words
    # The first request on which the two differ, with both answers; empty if none does.
    differs: str = ""


def field_results(
    unchanged: Mapping[str, Any], answers: Iterable[tuple[Change, Mapping[str, Any]]]
) -> list[FieldResult]:
    """The results by field, in the order of the files; those that are wrong first."""
    found: dict[tuple[str, str], FieldResult] = {}
    for change, answer in answers:
        place = f"{change.file}:{change.field}" if change.field else change.file
        result = _result(answer, unchanged)
        row = found.setdefault(
            (place, result), FieldResult(place, result, differs=_difference(answer))
        )
        row.changes.append(change.what)
    return sorted(found.values(), key=lambda row: _RESULTS.index(row.result))


def _result(answer: Mapping[str, Any], unchanged: Mapping[str, Any]) -> str:
    verdict: str = answer["verdict"]
    if verdict == "right":
        return "idle" if answer["prompts"] == unchanged["prompts"] else "followed"
    return "unanswered" if verdict == "neither" else verdict


def _difference(answer: Mapping[str, Any]) -> str:
    """The first request with the verdict of all, or the refusals to load."""
    if answer["verdict"] in AGREED:
        return ""
    for name, (verdict, theirs, ours) in answer["requests"].items():
        if verdict == answer["verdict"]:
            return f"{name}: vLLM {_told(theirs)}, mmroute {_told(ours)}"
    sides = {"vllm": "vLLM", "mmroute": "mmroute"}
    return ", ".join(f"{sides[side]} {answer[side]}" for side in sides if side in answer)


def _told(answer: int | str) -> str:
    return f"{answer} tokens" if isinstance(answer, int) else answer
