"""Comparing answers with vectors: exact IDs and ranges, or inexact where the engine refuses."""

from __future__ import annotations

import hashlib
import json
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from small_models import SMALL_MODELS, fingerprint

from mmroute import Normalizer
from mmroute.model.files import EMBEDDED_MODEL, find_model
from mmroute.request_lines import answer_line, tokens_answer

REQUEST_FIELDS = (
    "id", "messages", "prompt", "prompt_token_ids", "images", "add_special_tokens",
    "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools",
    "mm_processor_kwargs", "cache_salt", "lora",
)  # fmt: skip


def read_vectors(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The meta line and the cases of a vector file."""
    # Only a line feed ends a line: strings may hold other separators.
    lines = path.read_text(encoding="utf-8").split("\n")
    meta, *cases = (json.loads(line) for line in lines if line)
    assert meta["kind"] == "meta", path
    return meta, cases


def own_fingerprint(name: str) -> str:
    """The fingerprint of a small model's files, or of the embedded model's."""
    if name == EMBEDDED_MODEL:
        return hashlib.sha256(find_model(name).path("tekken.json").read_bytes()).hexdigest()
    return fingerprint(SMALL_MODELS[name]())


def difference(normalizer: Normalizer, case: dict[str, Any]) -> str | None:
    """What is wrong with the answer to a case, or None."""
    line = json.dumps({field: case[field] for field in REQUEST_FIELDS if field in case})
    answer, expected = answer_line(line, normalizer.answer, tokens_answer), case["expect"]
    if "refused" in expected:
        if answer["exact"]:
            return f"SILENT: exact, but the engine refuses: {expected['refused']}"
        return None
    if not answer["exact"]:
        return f"inexact ({answer['reason']}: {answer['message']}), but the engine answers"
    runs = [[token_id, len(list(run))] for token_id, run in groupby(answer["token_ids"])]
    if runs != expected["token_runs"]:
        pairs = zip_longest(runs, expected["token_runs"])
        at = next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)
        theirs = expected["token_runs"][at:][:4]
        return f"SILENT: other IDs from run {at}: {runs[at:][:4]} != {theirs}"
    ranges = sorted(expected["placeholders"], key=lambda p: p["offset"])
    if answer["placeholders"] != ranges:
        return f"SILENT: other ranges: {answer['placeholders'][:3]} != {ranges[:3]}"
    return None


def matrix(results: dict[Path, dict[str, str | None]]) -> str:
    """Right answers of all, by model and kind of case, as a Markdown table."""
    kinds: list[str] = []
    rows: dict[str, dict[str, list[bool]]] = {}
    for path, wrong in results.items():
        row = rows.setdefault(path.stem, {})
        for case in read_vectors(path)[1]:
            kind = case["tags"][0]
            if kind not in kinds:
                kinds.append(kind)
            row.setdefault(kind, []).append(wrong[case["id"]] is None)
    lines = [f"| model | {' | '.join(kinds)} |", "| --- |" + " ---: |" * len(kinds)]
    for model, row in rows.items():
        cells = (f"{sum(row[kind])}/{len(row[kind])}" if kind in row else "-" for kind in kinds)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)
