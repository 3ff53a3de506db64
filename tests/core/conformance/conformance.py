"""The models of the vectors, and how many answers are right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from comparison import read_vectors
from small_models import SMALL_MODELS, fingerprint

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.reuse.fast_paths import FastPaths


def own_fingerprint(name: str) -> str:
    """The fingerprint of a small model's files, or of the embedded model's."""
    if name == EMBEDDED_MODEL:
        return hashlib.sha256(find_model(name).path("tekken.json").read_bytes()).hexdigest()
    return fingerprint(SMALL_MODELS[name]())


def load_as_served(directory: Path, meta: Mapping[str, Any]) -> Normalizer:
    """A model, served with the settings that the answers of a vector file were computed with.

    The reference encodes: what is faster has tests of its own.
    """
    environment = meta.get("backend_env", {})
    line = " ".join(f"{name}={value}" for name, value in environment.items())
    model = _resolved(directory, meta.get("model_id"), line)
    batched = meta.get("backend_args", {}).get("max_num_batched_tokens", 0)
    limits = model.engine.limits
    limits = replace(limits, min_encoder_cache=max(limits.min_encoder_cache, batched))
    return Normalizer(replace(model, engine=replace(model.engine, limits=limits)))


@lru_cache(maxsize=1)  # the vector files of one model are run one after the other
def _resolved(directory: Path, model_id: str | None, command_line: str) -> ResolvedModel:
    return resolve_model(
        str(directory),
        model_id=model_id,
        fast_paths=FastPaths(encoder="tokenizers"),
        engine_settings=VllmSettings.from_args(command_line),
    )


def matrix(results: dict[Path, dict[str, dict[str, str]]]) -> str:
    """Right answers of all, by model and kind of case, as a Markdown table."""
    kinds: list[str] = []
    rows: dict[str, dict[str, list[bool]]] = {}
    for path, wrong in results.items():
        row = rows.setdefault(path.stem, {})
        for case in read_vectors(path)[1]:
            kind = case["tags"][0]
            if kind not in kinds:
                kinds.append(kind)
            row.setdefault(kind, []).append(not wrong[case["id"]])
    lines = [f"| model | {' | '.join(kinds)} |", "| --- |" + " ---: |" * len(kinds)]
    for model, row in rows.items():
        cells = (f"{sum(row[kind])}/{len(row[kind])}" if kind in row else "-" for kind in kinds)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)
