"""Earlier versions of vLLM: what their own code answered (``vectors/versions``), and ours."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparison import read_lines, read_vectors, with_files
from image_vectors import BLOCK_SIZE, HASH_SEED, file_urls
from paths import VECTORS
from small_models import SMALL_MODELS, fingerprint

from mmroute import Normalizer, PlaceholderRange, Reason, Routing
from mmroute.engines.vllm.versions import ERAS
from mmroute.kv_events import BlockStored, decode_events
from mmroute.requests.lines import request_of

pytestmark = pytest.mark.conformance

FILES = sorted((VECTORS / "versions").glob("*/*.jsonl"))
# Data URLs with parameters, which vLLM reads since 0.27; mmroute reads them for all versions.
READ_SINCE_0_27 = {"url-parameters"}
OLDER = ("0.24-0.26", "0.19-0.23", "0.16-0.18", "0.13-0.15")
OF_PROMPTS = ("token_runs", "placeholders")
OF_HASHES = ("mm_identifiers", "num_blocks", "last_block_hash")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_answers_are_those_of_the_version(path: Path, small_model: Callable[[str], Path]) -> None:
    meta, *lines = read_lines(path)
    assert meta["fingerprint"] == fingerprint(SMALL_MODELS[meta["model"]]())
    engine = f"vllm=={meta['versions'][0]}"
    normalizer = Normalizer.from_pretrained(
        small_model(meta["model"]), backend=engine, model_id=meta["model_id"]
    )
    requests = requests_of(path.name)
    wrong = {}
    for line in lines:
        routing = normalizer.answer(request_of(requests[line["id"]]))
        if routing.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS:
            continue
        theirs = {name: value for name, value in line.items() if name in OF_PROMPTS + OF_HASHES}
        ours = answer_of(routing, hashed="last_block_hash" in line)
        if ours != theirs:
            wrong[line["id"]] = ours
        elif "event" in line:
            check_event(line["event"], routing)
    assert wrong.keys() == (READ_SINCE_0_27 if path.parent.name in OLDER else set())


@functools.cache
def requests_of(name: str) -> dict[str, dict[str, Any]]:
    """The requests of a file of ``vectors/images``, by id."""
    _, cases = read_vectors(VECTORS / "images" / name)
    urls = file_urls()
    return {case["id"]: with_files(case, urls) for case in cases}


def answer_of(routing: Routing, *, hashed: bool) -> dict[str, Any]:
    """Our answer in the form of the vectors."""
    if not routing.exact:
        return {}
    ids = routing.token_ids.tolist()
    prompt = {
        "token_runs": [[token, len(list(run))] for token, run in itertools.groupby(ids)],
        "placeholders": [placed(p) for p in routing.placeholders],
    }
    if not hashed:
        return prompt
    hashes = routing.block_hashes(seed=HASH_SEED, block_size=BLOCK_SIZE)
    return {
        **prompt,
        "mm_identifiers": [str(identity) for identity in routing.identities],
        "num_blocks": len(hashes),
        "last_block_hash": hashes.hex()[-1] if hashes else None,
    }


def placed(placeholder: PlaceholderRange) -> dict[str, Any]:
    """A range in the form of the vectors."""
    found: dict[str, Any] = {"offset": placeholder.offset, "length": placeholder.length}
    if placeholder.embed_runs is not None:
        found["embed_runs"] = [[int(embed), length] for embed, length in placeholder.embed_runs]
    return found


def check_event(payload: str, routing: Routing) -> None:
    """What the engine's event says is what mmroute reads, and computes."""
    hashes = routing.block_hashes(seed=HASH_SEED, block_size=BLOCK_SIZE).event_ints()
    events = decode_events(bytes.fromhex(payload)).events
    for event in events:
        assert isinstance(event, BlockStored)
        assert list(event.block_hashes) == hashes
        assert list(event.token_ids) == routing.token_ids[: len(hashes) * BLOCK_SIZE].tolist()
        assert event.block_size == BLOCK_SIZE
        assert event.parent_block_hash is None
    assert bool(events) == bool(hashes)


def test_a_version_is_called_proved_only_if_its_answers_are_here() -> None:
    answered: dict[str, set[str]] = {}
    for path in FILES:
        meta = json.loads(path.read_text().partition("\n")[0])
        answered.setdefault(path.parent.name, set()).update(meta["versions"])
    releases = [profile.release for profile in ERAS]
    proved = {release.era.replace(" to ", "-"): set(release.proved) for release in releases}
    assert answered == {era: versions for era, versions in proved.items() if versions}
