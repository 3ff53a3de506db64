"""Write an oracle's answers as a file of vectors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mmroute.parity.cases import Oracle, Outcome
from mmroute.parity.report import Report

__all__ = ["write_vectors"]


def write_vectors(
    path: Path, report: Report, oracle: Oracle, fingerprints: Mapping[str, str]
) -> None:
    """Write every decided case with the oracle's answer, in the format that `VectorsOracle` reads.

    Args:
        path: of the file.
        report: of a validation.
        oracle: that was asked.
        fingerprints: SHA-256 of each file of the model, which the answers depend on.

    Raises:
        OSError: the file cannot be written.
    """
    meta = {
        "kind": "meta",
        "model": report.model,
        "backend": oracle.name,
        "backend_version": oracle.version,
        "mmroute": version("mmroute"),
        "files": dict(fingerprints),
    }
    lines: list[dict[str, Any]] = [meta]
    for finding in report.findings:
        if finding.theirs is not None:
            case = finding.case
            lines.append(
                {
                    "id": case.id,
                    **case.request,
                    "tags": [case.kind],
                    "expect": _expected(finding.theirs),
                }
            )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def _expected(answer: Outcome) -> dict[str, Any]:
    if answer.token_ids is None:
        return {"refused": answer.refusal}
    ids = answer.token_ids.tolist()
    expected: dict[str, Any] = {
        "token_runs": [[token_id, len(list(run))] for token_id, run in itertools.groupby(ids)],
        "n_tokens": len(ids),
    }
    if answer.ranges is not None:
        expected["placeholders"] = [
            {"offset": offset, "length": length} for offset, length in answer.ranges
        ]
    return expected
