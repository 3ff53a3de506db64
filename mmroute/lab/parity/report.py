"""The report of a validation, as text and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mmroute.engines.running import RunningEngine
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.lab.parity.differences import first_difference
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_AROUND: Final = 6  # token IDs shown before and after the first difference
_SHOWN_CASES: Final = 3  # of each verdict
_LONGEST_TEXT: Final = 60
_GROUPS: Final = {
    Verdict.SILENT: "wrong",
    Verdict.UNNEEDED: "inexact, though the oracle answers",
    Verdict.UNDECIDED: "not decided",
    Verdict.NO_BLOCK: "no block compared",
}
# The errors of tokenizers for an ID that is not in their vocabulary.
_NOT_DECODED: Final = (ValueError, KeyError, OverflowError, IndexError)
_MEANINGS: Final = {
    Verdict.EQUAL: "the same IDs, ranges, features, identities and hashes, as far as both sides "
    "have them",
    Verdict.NO_BLOCK: "the same IDs, and no block was announced whose hash was compared",
    Verdict.REFUSED: "both refuse the request, which proves nothing of the tokens",
    Verdict.SILENT: "mmroute's answer is exact, and differs from the oracle's",
    Verdict.UNNEEDED: "the oracle answers, and mmroute does not",
    Verdict.UNDECIDED: "the oracle does not know; for parity, at least as many answers must be "
    "equal",
}


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one validation."""

    model: ResolvedModel
    oracle: str  # the name and version of the oracle
    findings: tuple[Finding, ...]  # the findings in the order of the cases
    running: RunningEngine | None = None  # the engine that answered; None for other oracles
    # The settings with which more answers would be equal; empty if none are known.
    proposal: str = ""
    # Remarks on how the engine was started, or on what was compared, in sentences.
    notes: tuple[str, ...] = ()
    finished: bool = True  # whether all requests were answered or refused

    @property
    def warning(self) -> str:
        """The reason why the engine's version may answer otherwise; empty if it does not."""
        return "" if self.running is None else self.running.warning(self.model.engine)

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """The number of findings of each verdict."""
        return Counter(finding.verdict for finding in self.findings)

    @property
    def parity(self) -> bool | None:
        """True if all decided answers are equal; False if one is not.

        None if none is equal, if most answers are undecided, if not all requests were sent, or if
        both sides refuse every request with an item of one of the model's modalities.
        """
        if self.verdicts[Verdict.SILENT] or self.verdicts[Verdict.UNNEEDED]:
            return False
        if not self.finished:
            return None
        refused = (f for f in self.findings if f.verdict is Verdict.REFUSED)
        asked = {modality for f in refused for modality in f.case.modalities}
        modalities = tuple(self.model.media)
        if self.uncompared == modalities and not asked.isdisjoint(modalities):
            return None
        equal = self.verdicts[Verdict.EQUAL]
        return True if equal and equal >= self.verdicts[Verdict.UNDECIDED] else None

    @property
    def uncompared(self) -> tuple[Modality, ...]:
        """The modalities of the model for which no two answers were compared."""
        answered = (
            f
            for f in self.findings
            if f.theirs and f.theirs.token_ids is not None and f.verdict is not Verdict.NO_BLOCK
        )
        compared = {modality for f in answered for modality in f.case.modalities}
        return tuple(modality for modality in self.model.media if modality not in compared)


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return {
        "model": report.model.name,
        "family": report.model.family.family,
        "oracle": report.oracle,
        "engine": "" if report.running is None else str(report.running),
        "warning": report.warning,
        "proposal": report.proposal,
        "parity": report.parity,
        "uncompared": report.uncompared,
        "verdicts": {verdict.value: report.verdicts[verdict] for verdict in Verdict},
        "kinds": {kind: dict(counts) for kind, counts in _by_kind(report.findings).items()},
        "notes": list(report.notes),
        "findings": [
            _finding_as_json(finding)
            for finding in report.findings
            if finding.verdict not in (Verdict.EQUAL, Verdict.REFUSED)
        ],
    }


def as_lines(report: Report) -> Iterator[str]:
    """The report for people, line by line."""
    yield f"{report.model.name} ({report.model.family.family}) against {report.oracle}"
    if report.running is not None:
        yield str(report.running)
    yield from report.notes
    yield ""
    kinds = _by_kind(report.findings)
    width = max([len("KIND"), *map(len, kinds)])
    yield "  ".join([f"{'KIND':{width}}", *(verdict.upper() for verdict in Verdict)])
    for kind, of_kind in kinds.items():
        cells = (f"{of_kind[v.value] or '.':>{len(v)}}" for v in Verdict)
        yield "  ".join([f"{kind:{width}}", *cells])
    for verdict, title in _GROUPS.items():
        findings = [finding for finding in report.findings if finding.verdict is verdict]
        if not findings:
            continue
        yield ""
        yield f"{title}: {len(findings)}"
        for finding in findings[:_SHOWN_CASES]:
            yield from (f"  {line}" for line in _finding_lines(finding, report.model.tokenizer))
        if len(findings) > _SHOWN_CASES:
            yield f"  and {len(findings) - _SHOWN_CASES} more"
    yield ""
    yield from (f"{verdict.upper():9}  {meaning}" for verdict, meaning in _MEANINGS.items())
    yield ""
    if report.proposal:
        yield report.proposal
    yield verdict_of(report)


def verdict_of(report: Report) -> str:
    """The report in one line."""
    counts = report.verdicts
    refused, no_block = counts[Verdict.REFUSED], counts[Verdict.NO_BLOCK]
    answers = len(report.findings) - counts[Verdict.UNDECIDED] - refused - no_block
    verdict = {True: "parity", False: "no parity", None: "not decided"}[report.parity]
    parts = [f"{verdict}: {counts[Verdict.EQUAL]} of {answers} answers are equal"]
    if refused:
        parts.append(f"both refuse {refused} requests")
    if no_block:
        parts.append(f"no block of {no_block} requests was compared")
        if report.parity is None and not counts[Verdict.EQUAL]:
            parts.append("send prompts that are longer than a block, with --cases")
    if not report.finished:
        parts.append("not all requests were sent")
    if report.uncompared:
        missing = " and none with ".join(f"{modality}s" for modality in report.uncompared)
        parts.append(f"no answer with {missing} was compared")
    return "; ".join(parts)


def _by_kind(findings: Sequence[Finding]) -> dict[str, Counter[str]]:
    """The number of findings of each verdict, by the kind of their case."""
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for finding in findings:
        kinds[finding.case.kind][finding.verdict.value] += 1
    return kinds


def _finding_lines(finding: Finding, tokenizer: Tokenizer) -> Iterator[str]:
    yield f"{finding.case.id}: {finding.note}".rstrip(": ")
    at = _first_difference(finding)
    if at is None or finding.theirs is None:
        return
    for name, answer in (("mmroute", finding.ours), ("oracle", finding.theirs)):
        if answer.token_ids is not None:
            yield f"  {name:8} {_strip(answer.token_ids, at, tokenizer)}"


def _first_difference(finding: Finding) -> int | None:
    """The index of the first token ID that differs; None if none does, or a side has none."""
    ours = finding.ours.token_ids
    theirs = None if finding.theirs is None else finding.theirs.token_ids
    if ours is None or theirs is None or np.array_equal(ours, theirs):
        return None
    return first_difference(ours, theirs)


def _strip(ids: TokenIds, at: int, tokenizer: Tokenizer) -> str:
    """The IDs around the first difference, which is in brackets, and their text."""
    start, end = max(0, at - _AROUND), at + _AROUND + 1
    shown = list(map(str, ids[start:end].tolist()))
    if at < len(ids):
        shown[at - start] = f"[{shown[at - start]}]"
    else:
        shown.append("[end]")
    strip = f"at {at} of {len(ids)}: {'... ' if start else ''}{' '.join(shown)}"
    try:
        text = tokenizer.decode(ids[start:end].tolist())
    except _NOT_DECODED:
        return strip
    shortened = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    return f"{strip}  {shortened!r}"


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "id": finding.case.id,
        "kind": finding.case.kind,
        "verdict": finding.verdict.value,
        "note": finding.note,
        "request": dict(finding.case.request),
    }
    at = _first_difference(finding)
    if at is not None:
        result["first_difference"] = at
    for name, answer in (("mmroute", finding.ours), ("oracle", finding.theirs)):
        if answer is not None:
            ids = answer.token_ids
            refused = {"refused": answer.refusal}
            result[name] = refused if ids is None else {"token_ids": ids.tolist()}
    return result
