"""Directories that differ by one field of a file, against what vLLM 0.33.0 answered about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from paths import VECTORS
from small_models import media_model, write_items, write_model

from mmroute.lab.parity.comparison import our_outcome
from mmroute.lab.specs.field_answers import digest_of, requests_of
from mmroute.lab.specs.field_changes import TEMPLATE
from mmroute.lab.specs.field_checks import lay
from mmroute.model.resolve import resolve_model

LINES: Final = (VECTORS / "changed" / "fields.jsonl").read_text(encoding="utf-8").splitlines()
CHANGED: Final[dict[str, list[dict[str, Any]]]] = {}
for _vector in map(json.loads, LINES):
    CHANGED.setdefault(_vector["model"], []).append(_vector)


@pytest.mark.conformance
@pytest.mark.parametrize("model", CHANGED)
def test_changed_files_are_read_as_by_vllm(model: str, tmp_path: Path) -> None:
    base = write_model(media_model(model), tmp_path / "base" / model)
    write_items(resolve_model(str(base)), base / TEMPLATE)
    requests = {case.id: case for case in requests_of(resolve_model(str(base)))}
    wrong = []
    for number, vector in enumerate(CHANGED[model]):
        directory = tmp_path / str(number) / model
        lay(base, directory, vector["files"])
        changed = resolve_model(str(directory))
        ours = {name: our_outcome(changed, requests[name]) for name in vector["tokens"]}
        if digest_of(ours) != vector["prompts"]:
            counts = {
                name: one.refusal if one.token_ids is None else len(one.token_ids)
                for name, one in ours.items()
            }
            wrong.append((vector["file"], vector["field"], vector["what"], counts))
    assert not wrong
