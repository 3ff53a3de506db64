"""A Ray cluster of several nodes: hit rates, and a node that is lost.

The engines hold what vLLM holds: their block hashes are made of vLLM's own answers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compare_routers import AT_A_TIME, cluster, deploy, lose_a_node
from comparison import read_vectors, request_of, with_files
from image_vectors import IMAGE_VECTORS, engine_hashes, file_urls
from ray.cluster_utils import Cluster
from ray.serve.handle import DeploymentHandle
from workload import Prompt, ask, hit_rate, low_bits, repeated

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore")]  # those of Ray

MODEL = "small-qwen2.5-vl"
REPEATS = 4
BAR = (REPEATS - 1) / REPEATS
PORT = 18423
MOST_SECONDS = 240


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    def end(*_: object) -> None:
        raise TimeoutError("Ray did not come so far in time")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(MOST_SECONDS)
    with cluster(2, http_port=PORT) as started:
        yield started
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """The chats with pictures, and the blocks that vLLM holds of them."""
    _, cases = read_vectors(next(path for path in IMAGE_VECTORS if path.stem == MODEL))
    found = {}
    for case in cases:
        expect, request = case["expect"], with_files(request_of(case), file_urls())
        if expect.get("placeholders") and expect["block_extra_keys"] and len(request) == 2:
            blocks = low_bits(engine_hashes(expect))
            found[blocks[-1]] = Prompt(request["messages"], blocks, [])
    return list(found.values())


@pytest.fixture(scope="module")
def num_blocks(prompts: list[Prompt]) -> int:
    return sum(len(prompt.blocks) for prompt in prompts) * 3 // 4


@pytest.fixture(scope="module")
def routed(nodes: Cluster, num_blocks: int, small_model: Callable[[str], Path]) -> DeploymentHandle:
    assert nodes.worker_nodes
    return deploy(
        "routed", "mmroute.server.ray:BlockHashRouter", num_blocks, seconds=0.01,
        model=str(small_model(MODEL)), engine_args=f"vllm serve org/{MODEL}",
        served_names=("m",), token_ids_kwarg="prompt_token_ids",
        request_tokens=0,  # requests of these engines do not wait for one another
    )  # fmt: skip


def test_every_prompt_that_comes_back_is_found(
    routed: DeploymentHandle, prompts: list[Prompt]
) -> None:
    assert len(prompts) > 30
    order = repeated(prompts, REPEATS)
    assert hit_rate(asyncio.run(ask(routed, order, at_a_time=AT_A_TIME))) >= BAR


def test_a_lost_node_costs_what_it_computes_and_what_it_holds(
    nodes: Cluster, routed: DeploymentHandle, prompts: list[Prompt]
) -> None:
    order = repeated(prompts, 20)
    answers, killed = lose_a_node(nodes, routed, order, after=2)
    lost = [answer for answer in answers if answer.lost]
    assert len(lost) <= AT_A_TIME
    assert {answer.lost for answer in lost} <= {"ActorDiedError", "ActorUnavailableError"}
    assert killed < max(answer.second for answer in answers) - 2, "nothing came after it"
    assert hit_rate(answers[-len(order) // 5 :]) > 0.9
