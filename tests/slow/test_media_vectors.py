"""Videos and audio, as the engine answers them.

MMROUTE_VIDEO_VECTORS and MMROUTE_AUDIO_VECTORS name the directories of vectors; each file names its
model below MMROUTE_MEDIA_ROOT. The engine refuses some requests, and mmroute some more: those whose
header does not tell what is decoded.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from comparison import expanded, read_vectors

from mmroute import Reason, Routing
from mmroute.answering.pipeline import answer
from mmroute.model.resolve import resolve_model
from mmroute.requests.lines import request_of
from mmroute.reuse.fast_paths import FastPaths

NOT_PREDICTABLE = {Reason.VIDEO_NOT_PREDICTABLE, Reason.AUDIO_NOT_PREDICTABLE}
UNKNOWN = {"minimax-m3@no-cache"}  # a setting that is not read here


def _files() -> Iterator[Path]:
    for variable in ("MMROUTE_VIDEO_VECTORS", "MMROUTE_AUDIO_VECTORS"):
        root = os.environ.get(variable)
        if root:
            found = sorted(Path(root).glob("*.jsonl"))
            assert found, f"{variable} is {root}, which holds no vectors"
            yield from (file for file in found if file.stem not in UNKNOWN)


FILES = list(_files())


def with_files(value: Any, folder: Path) -> Any:
    """A request with each files/NAME as the file itself."""
    if isinstance(value, dict):
        if value.get("type") == "input_audio" and value["input_audio"]["data"].startswith("files/"):
            data = base64.b64encode((folder / value["input_audio"]["data"]).read_bytes()).decode()
            return {**value, "input_audio": {**value["input_audio"], "data": data}}
        return {key: with_files(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_files(inner, folder) for inner in value]
    if isinstance(value, str) and value.startswith("files/"):
        return f"data:x/x;base64,{base64.b64encode((folder / value).read_bytes()).decode()}"
    return value


def problem_of(routing: Routing, expect: dict[str, Any]) -> str:
    """What differs from the engine's answer; empty if nothing does."""
    if not routing.exact:
        right = "refused" in expect or routing.reason in NOT_PREDICTABLE
        return "" if right else f"{routing.reason}: {routing.message}"
    if "refused" in expect:
        return f"the engine refuses: {expect['refused'][:80]}"
    if routing.token_ids.tolist() != expanded(expect["token_runs"]):
        return "other token IDs"
    found: dict[str, list[tuple[int, int]]] = {}
    for place in routing.placeholders:
        found.setdefault(place.modality.value, []).append((place.offset, place.length))
    wanted = {
        modality: [(place["offset"], place["length"]) for place in places]
        for modality, places in expect["placeholders"].items()
    }
    if found != wanted:
        return f"ranges {found}, the engine's {wanted}"
    identities = [identity and identity.value for identity in routing.identities]
    named = expect.get("mm_identifiers", identities)
    if any(ours not in (None, theirs) for ours, theirs in zip(identities, named, strict=True)):
        return f"identities {identities}, the engine's {named}"
    return ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_media_vectors(path: Path) -> None:
    meta, cases = read_vectors(path)
    root = os.environ.get("MMROUTE_MEDIA_ROOT")
    assert root is not None, "vectors of videos and audio need MMROUTE_MEDIA_ROOT"
    directory = Path(root) / meta["model_dir"]
    reference = FastPaths(encoder="tokenizers")
    model = resolve_model(str(directory), model_id=meta["model_id"], fast_paths=reference)
    wrong = {}
    for case in cases:
        fields = {name: value for name, value in case.items() if name not in ("tags", "expect")}
        routing = answer(model, request_of(with_files(fields, path.parent)))
        if problem := problem_of(routing, case["expect"]):
            wrong[case["id"]] = problem
    assert not wrong
