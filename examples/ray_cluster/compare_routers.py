"""Routers of Ray Serve side by side, on a cluster of three nodes on this machine.

    python examples/ray_cluster/compare_routers.py [MODEL]

Four replicas with vLLM-shaped caches publish KV events. The same chats about pictures of one size
go through each router. Then a node is lost under load. Needs pip install '.[ray]'.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from simulated_engine import SimulatedEngine
from workload import Answer, Prompt, ask, hit_rate, pictures, repeated

from mmroute import Normalizer

AT_A_TIME = 8
REPLICAS = 4
REPEATS = 5
PICTURES = 40
DEFAULT = "ray.serve._private.request_router.pow_2_router:PowerOfTwoChoicesRequestRouter"
NODE = {"num_cpus": REPLICAS // 2, "object_store_memory": 100 << 20}
ROUTERS = {
    "Ray's default (power of two choices)": DEFAULT,
    "Ray's prefix affinity": "ray.llm._internal.serve.routing_policies.prefix_aware."
    "prefix_aware_router:PrefixCacheAffinityRouter",
    "by token IDs alone": "workload:TokenIdRouter",
    "mmroute's BlockHashRouter": "mmroute.server.ray:BlockHashRouter",
}

SHOWN = ("Ray's default (power of two choices)", "mmroute's BlockHashRouter")


@contextmanager
def cluster(nodes: int, http_port: int | None = None) -> Iterator[Cluster]:
    """So many nodes, each with processes of its own; all is stopped at the end."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # for the workers' processes
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    head = {**NODE, "include_dashboard": False, "_system_config": quick}
    started = Cluster()
    try:
        started.add_node(**head)
        for _ in range(nodes - 1):
            started.add_node(**NODE)
        ray.init(address=started.address, log_to_driver=False)
        where = "Disabled" if http_port is None else "HeadOnly"
        serve.start(proxy_location=where, http_options={"port": http_port or 8000})
        yield started
    finally:
        if ray.is_initialized():
            serve.shutdown()
            ray.shutdown()
        started.shutdown()


def deploy(
    name: str, router: str, num_blocks: int, *, seconds: float = 0.002, **options: Any
) -> DeploymentHandle:
    """Engines behind a router, once it answers: its model is loaded, and it knows of events.

    Args:
        name: of the application.
        router: its class.
        num_blocks: of each engine's cache.
        seconds: that an engine takes for a request.
        **options: of the router, `token_ids_kwarg` among them.
    """
    config = RequestRouterConfig(
        request_router_class=router,
        request_router_kwargs=options,
        request_routing_stats_period_s=0.5,
    )
    engines = serve.deployment(
        SimulatedEngine,
        num_replicas=REPLICAS,
        max_ongoing_requests=100,
        ray_actor_options={"num_cpus": 1},
        request_router_config=config,
        health_check_period_s=1,
    )
    handle = serve.run(engines.bind(num_blocks, seconds), name=name, route_prefix=None)
    hello = SimpleNamespace(messages=[{"role": "user", "content": "Hi"}])
    deadline = time.monotonic() + 60
    while handle.remote(hello, [], []).result()["tokens"] is None and options:
        if time.monotonic() > deadline:
            raise TimeoutError("the router has not begun to answer")
        time.sleep(0.1)
    return handle


def compare(model: str, prompts: Sequence[Prompt]) -> dict[str, list[Answer]]:
    """The same requests through each router."""
    num_blocks = sum(len(prompt.blocks) for prompt in prompts) // 2
    answers = {}
    for number, (name, router) in enumerate(ROUTERS.items()):
        handle = deploy(f"compare-{number}", router, num_blocks, **_options(router, model))
        by_ids = "TokenId" in router
        order = repeated(prompts, REPEATS)
        answers[name] = asyncio.run(ask(handle, order, at_a_time=AT_A_TIME, by_ids=by_ids))
        print(f"{name:38} {hit_rate(answers[name]):6.1%}", flush=True)
        serve.delete(f"compare-{number}")
    return answers


def lose_a_node(
    started: Cluster, handle: DeploymentHandle, order: Sequence[Prompt], after: float
) -> tuple[list[Answer], float]:
    """Answers while a node with engines is killed after so many seconds, and when it was."""

    async def run() -> tuple[list[Answer], float]:
        busy = {answer.node for answer in await ask(handle, order[:20], at_a_time=1)}
        began = time.monotonic()
        asking = asyncio.create_task(ask(handle, order, at_a_time=AT_A_TIME))
        await asyncio.sleep(after)
        killed = time.monotonic() - began
        node = next(node for node in started.worker_nodes if node.node_id in busy)
        await asyncio.to_thread(started.remove_node, node, allow_graceful=False)
        return await asking, killed

    return asyncio.run(run())


def _options(router: str, model: str) -> dict[str, Any]:
    ours = "BlockHash" in router or "TokenId" in router
    return {"model": model, "token_ids_kwarg": "prompt_token_ids"} if ours else {}


def by_second(answers: Sequence[Answer]) -> list[tuple[int, float]]:
    """The hit rate of the requests that were sent in each second."""
    seconds: dict[int, list[Answer]] = {}
    for answer in answers:
        seconds.setdefault(int(answer.second), []).append(answer)
    return [(second, hit_rate(sent)) for second, sent in sorted(seconds.items())]


def main() -> None:
    """Print the table, and what the loss of a node costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="pixtral-12b-2409")
    arguments = parser.parse_args()
    prompts = pictures(Normalizer.from_pretrained(arguments.model), PICTURES)
    with cluster(3) as started:
        print(f"{PICTURES} pictures, each asked about {REPEATS} times, {REPLICAS} replicas")
        compare(arguments.model, prompts)
        print(f"{'at best':38} {1 - 1 / REPEATS:6.1%}\n\na node is killed under load")
        num_blocks = sum(len(prompt.blocks) for prompt in prompts) // 2
        for number, name in enumerate(SHOWN):
            options = _options(ROUTERS[name], arguments.model)
            handle = deploy(f"lose-{number}", ROUTERS[name], num_blocks, seconds=0.02, **options)
            answers, killed = lose_a_node(started, handle, repeated(prompts, 60), after=4)
            lost = [answer.lost for answer in answers if answer.lost]
            print(
                f"{name}: {len(lost)} of {len(answers)} lost; a node was killed at {killed:.0f} s"
            )
            print("  ", " ".join(f"{rate:.0%}" for _, rate in by_second(answers)), flush=True)
            serve.delete(f"lose-{number}")
            started.add_node(**NODE)


if __name__ == "__main__":
    main()
