"""Traces: the simulated cache beside vLLM's own, policies beside each other, bad lines counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run
from paths import ROOT
from traces.make_trace import make_trace

from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.traces.block_cache import BlockCache
from mmroute.traces.requests import TracedRequest
from mmroute.traces.simulation import Fleet, Policy, hit_rates

POOLS = json.loads((ROOT / "tests" / "traces" / "block_pools.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("sequence", POOLS["sequences"])
def test_blocks_are_kept_and_evicted_as_by_vllm(sequence: dict[str, Any]) -> None:
    cache = BlockCache(sequence["num_blocks"])
    for step in sequence["steps"]:
        held = cache.num_held(step["hashes"])
        cached = cache.serve(step["hashes"], ends_in_block=bool(step["rest"]))
        assert cached == step["cached"]
        assert cached in {held, held - 1}
        assert cache.held()[:8] == step["order"]
    assert cache.held() == sequence["held"]


def test_a_prompt_larger_than_the_cache_changes_nothing() -> None:
    cache = BlockCache(3)
    cache.serve([1, 2], ends_in_block=True)
    before = cache.held()
    assert cache.serve([1, 2, 3, 4], ends_in_block=False) == 0
    assert cache.held() == before


def traced(hashes: list[int], *, ids: list[int] | None = None, session: int = 0) -> TracedRequest:
    return TracedRequest(
        hashes=np.array(hashes, np.uint64),
        id_hashes=np.array(hashes if ids is None else ids, np.uint64),
        chunks=(),
        num_tokens=16 * len(hashes) + 1,
        session=session,
    )


def test_token_ids_alone_take_two_images_for_one() -> None:
    """Two pictures of one size: equal IDs, other blocks. By hashes each finds its worker."""
    cat = traced([1, 2, 3, 4], ids=[9, 8, 7, 6])
    dog = traced([5, 6, 7, 8], ids=[9, 8, 7, 6])
    rates = {}
    for policy in (Policy.TOKEN_IDS, Policy.BLOCK_HASHES):
        fleet = Fleet(policy, workers=2, blocks=5, block_size=16)
        for request in [cat, dog] * 10:
            fleet.serve(request)
        rates[policy] = fleet.outcome().hit_rate
    assert rates[Policy.TOKEN_IDS] == 0
    assert rates[Policy.BLOCK_HASHES] == pytest.approx(18 / 20 * 64 / 65)


def test_a_larger_cache_is_never_worse() -> None:
    draw = np.random.default_rng(0)
    prompts = [draw.integers(1, 1 << 40, 12).tolist() for _ in range(20)]
    requests = [traced(prompts[n][: draw.integers(1, 12)]) for n in draw.integers(0, 20, 300)]
    rates = [rate for _, rate in hit_rates(requests, [13, 40, 120, 300], 16)]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_trace(30, turns=3, pictures=8, systems=2, skew=0.8, seed=0)
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in made))
    return path


def test_the_command_compares_routings(trace: Path) -> None:
    finished = run(
        "trace", str(trace), "--model", EMBEDDED_MODEL, "--model-id", "org/pixtral", "--json"
    )
    assert finished.status == 0, finished.stderr
    report = json.loads(finished.stdout)
    lines = trace.read_text().splitlines()
    assert report["requests"] == len(lines) == report["items"]["image"]
    rates = {each["policy"]: each["hit_rate"] for each in report["policies"]}
    assert list(rates) == [policy.value for policy in Policy]
    assert rates["block_hashes"] > rates["session"] > rates["round_robin"]
    assert report["one_cache"][-1]["hit_rate"] >= rates["block_hashes"]


def test_lines_without_an_exact_answer_are_counted_by_reason(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    no_uuid = '{"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": [%s]}'
    bad = ["nonsense", no_uuid % '{"width": 64, "height": 64}', '{"prompt": ""}']
    path.write_text("\n".join([trace.read_text().splitlines()[0], *bad]))
    report = json.loads(run("trace", str(path), "--model", EMBEDDED_MODEL, "--json").stdout)
    assert report["requests"] == 1
    assert report["refused"] == {
        "invalid_request": 1, "image_identity_unknown": 1, "empty_prompt": 1,
    }  # fmt: skip


def test_lines_of_mooncake_need_no_model(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 9, "input_length": 1600, "output_length": 5, "hash_ids": [1, 2, 4, 5]},
        {"timestamp": 9, "input_length": "many", "hash_ids": []},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = json.loads(run("trace", str(path), "--json").stdout)
    assert (report["block_size"], report["blocks"], report["different_blocks"]) == (512, 5, 3)
    assert report["refused"] == {"invalid_request": 1}
    assert {each["policy"] for each in report["policies"]}.isdisjoint({"text_prefix", "token_ids"})
    assert run("trace", str(path)).stdout.startswith("2 requests with an exact answer")


def test_a_trace_without_any_answer_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "x"}\n')
    finished = run("trace", str(path))
    assert (finished.status, finished.stdout) == (1, "")
    assert "invalid_request 1" in finished.stderr
