"""Files of vectors, which hold an engine's answers: writing them, and reading them as an oracle.

The format is JSON Lines. A meta line says with what the answers were computed. Each further line is
a request with its ``id``, ``tags`` and ``expect``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from mmroute.engine import engine_names
from mmroute.engines.running import running_engine
from mmroute.errors import Reason
from mmroute.geometry import EmbedRuns
from mmroute.health.self_check import Check
from mmroute.lab.parity.cases import (
    Case,
    Oracle,
    Outcome,
    UndecidedError,
    json_objects,
    merged_runs,
)
from mmroute.lab.parity.comparison import Verdict, compare
from mmroute.lab.parity.oracles.common import OracleError, answered, refused, validated
from mmroute.lab.parity.report import Report
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Request
from mmroute.token_ids import MAX_TOKEN_ID

_MAX_CHECKED: Final = 12
_REQUEST_FIELDS = frozenset(Request._fields)
_Run = tuple[
    Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)], Annotated[int, msgspec.Meta(ge=0)]
]


class _Meta(msgspec.Struct):
    kind: Literal["meta"]
    model: str
    backend: str
    backend_version: str


class _Placed(msgspec.Struct):
    offset: int
    length: int
    embed_runs: list[_Run] | None = None

    def features(self) -> EmbedRuns | None:
        """The runs of features; None where the file does not have them."""
        if self.embed_runs is None:
            return None
        return merged_runs((bool(embed), length) for embed, length in self.embed_runs)


class _Expected(msgspec.Struct):
    refused: str | None = None
    token_runs: list[_Run] | None = None
    placeholders: list[_Placed] | None = None

    def __post_init__(self) -> None:
        if (self.refused is None) == (self.token_runs is None):
            raise ValueError("must have exactly one of refused and token_runs")

    def answer(self) -> Outcome:
        if self.token_runs is None:
            return refused(self.refused)
        ids = itertools.chain.from_iterable(itertools.starmap(itertools.repeat, self.token_runs))
        if self.placeholders is None:
            return answered(ids, None)
        ranges = [(placed.offset, placed.length) for placed in self.placeholders]
        return answered(ids, ranges, [placed.features() for placed in self.placeholders])


class _Vector(msgspec.Struct):
    id: str
    expect: _Expected
    tags: list[str] = []


class VectorsOracle:
    """Looks up the recorded answer to a case by its ID."""

    def __init__(self, path: Path) -> None:
        """Read and check a file."""
        lines = json_objects(path)
        _, where, first = next(lines)
        meta = validated(_Meta, first, where)
        self.name = path.name
        self.version = f"{meta.backend} {meta.backend_version}"
        self.running = None
        if meta.backend in engine_names():
            self.running = running_engine(meta.backend, meta.backend_version)
        self._cases: dict[str, Case] = {}
        self._answers: dict[str, Outcome] = {}
        for _, where, value in lines:
            vector = validated(_Vector, value, where)
            if vector.id in self._cases:
                what = f"{where}: id: {vector.id!r} occurs twice"
                raise OracleError(what, Reason.MALFORMED_FILE)
            request = {name: each for name, each in value.items() if name in _REQUEST_FIELDS}
            kind = vector.tags[0] if vector.tags else "untagged"
            self._cases[vector.id] = Case(vector.id, kind, request)
            self._answers[vector.id] = vector.expect.answer()

    def cases(self) -> list[Case]:
        """The requests of the file, in its order."""
        return list(self._cases.values())

    def answer(self, case: Case) -> Outcome:
        """See `Oracle.answer`. Only the file's own requests have an answer."""
        if self._cases.get(case.id) != case:
            raise UndecidedError(f"{self.name} has no such request")
        return self._answers[case.id]


def write_vectors(
    path: Path, report: Report, oracle: Oracle, fingerprints: Mapping[str, str]
) -> None:
    """Write every decided case with the oracle's answer, as `VectorsOracle` reads them."""
    meta = {
        "kind": "meta",
        "model": report.model.name,
        "backend": oracle.name,
        "backend_version": oracle.version,
        "mmroute": version("mmroute"),
        "files": dict(fingerprints),
    }
    answers = [(each.case, each.theirs) for each in report.findings if each.theirs is not None]
    vectors = [
        {"id": case.id, **case.request, "tags": [case.kind], "expect": _expected(theirs)}
        for case, theirs in answers
    ]
    lines = [f"{json.dumps(line)}\n" for line in (meta, *vectors)]
    path.write_text("".join(lines), encoding="utf-8")


def _expected(answer: Outcome) -> dict[str, Any]:
    if answer.token_ids is None:
        return {"refused": answer.refusal}
    ids = answer.token_ids.tolist()
    expected: dict[str, Any] = {
        "token_runs": [[token_id, len(list(run))] for token_id, run in itertools.groupby(ids)],
        "n_tokens": len(ids),
    }
    if answer.ranges is not None:
        known = answer.features or itertools.repeat(None)
        expected["placeholders"] = [
            {"offset": offset, "length": length} | ({} if runs is None else {
                "embed_runs": [[int(embed), count] for embed, count in runs]
            })
            for (offset, length), runs in zip(answer.ranges, known, strict=False)
        ]  # fmt: skip
    return expected


def check_recorded(model: ResolvedModel, path: Path) -> Check:
    """Compare mmroute's answers with some of those in a file of vectors."""
    oracle = VectorsOracle(path)
    cases = oracle.cases()
    compared = cases[:: max(1, -(-len(cases) // _MAX_CHECKED))]
    findings = list(compare(model, oracle, compared))
    wrong = [f for f in findings if f.verdict in (Verdict.SILENT, Verdict.UNNEEDED)]
    problems = [f"{f.case.id}: not {oracle.version}'s answer ({f.note})" for f in wrong]
    if not any(f.theirs and f.theirs.token_ids is not None for f in findings):
        problems.append(f"{path} holds no request that is answered")
    detail = f"{len(compared)} of {len(cases)} compared, equal to {oracle.version}"
    return Check("vectors", ok=not problems, detail="; ".join(problems) or detail)
