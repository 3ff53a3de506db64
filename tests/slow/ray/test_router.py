"""Which replica a request goes to: by blocks it holds or is about to hold, images told apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from paths import ROOT
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID
from scripted_publisher import Worker
from waiting import until
from workload import Prompt as Pictured
from workload import TokenIdRouter, pictures

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, WorkerState, cost
from mmroute.server.ray import BlockHashRouter
from mmroute.server.ray.alpha import EVENTS_KEY
from mmroute.server.ray.caches import Endpoints, ReplicaCaches

pytestmark = pytest.mark.process

BLOCK_SIZE = 16
MODEL = "pixtral-12b-2409"
TEXT = {"prompt": "word " * 100}


@cache
def loaded() -> Normalizer:
    return Normalizer.from_pretrained(MODEL)


@cache
def picture(number: int) -> Pictured:
    """One of two, of one size, in a prompt."""
    return pictures(loaded(), 2)[number]


def events(name: str, hashes: Sequence[int]) -> bytes:
    """A batch with one event, as vLLM encodes it."""
    event = {
        "type": name, "block_hashes": list(hashes), "parent_block_hash": None, "token_ids": [],
        "block_size": BLOCK_SIZE, "lora_id": None, "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    return msgspec.msgpack.encode([time.time(), [event], 0])


@pytest.fixture
def publisher() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


class Replica:
    """What a router sees of a replica."""

    max_ongoing_requests = 100

    def __init__(self, name: str, publisher: Worker | None = None) -> None:
        self.replica_id = ReplicaID(name, DeploymentID("engines"))
        told = publisher and {
            "endpoint": publisher.endpoint,
            "replay_endpoint": publisher.replay_endpoint,
            "block_size": BLOCK_SIZE,
        }
        self.routing_stats = {EVENTS_KEY: told} if told else {}

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return 0


class Fleet:
    """A router of two replicas, `a` and `b`, of which `a` publishes events."""

    def __init__(
        self, publisher: Worker, kind: type[BlockHashRouter] = BlockHashRouter, **options: Any
    ) -> None:
        self.router = kind(
            DeploymentID("engines"),
            DeploymentHandleSource.UNKNOWN,
            use_replica_queue_len_cache=True,
        )
        self.router.initialize_state(model=MODEL, **options)
        self.router._reader.wait()
        self.a, self.b = Replica("a", publisher), Replica("b")
        self.requests = 0
        self.update([self.a, self.b])

    def update(self, replicas: list[Replica]) -> None:
        async def update() -> None:
            self.router._lazily_fetched_loop = None
            self.router.update_replicas(replicas)

        asyncio.run(update())

    def held(self, hashes: Sequence[bytes]) -> Mapping[str, int]:
        return self.router._caches.longest_prefixes(hashes)

    def pick(self, *arguments: Any, **keywords: Any) -> tuple[str, Any]:
        """The name of the first choice, and the request as it is handed on."""
        self.requests += 1
        pending = SimpleNamespace(
            args=list(arguments),
            kwargs=dict(keywords),
            metadata=SimpleNamespace(internal_request_id=str(self.requests)),
        )
        ranks = asyncio.run(self.router.choose_replicas([self.a, self.b], pending))
        assert [len(rank) for rank in ranks] == [1, 1]
        return ranks[0][0].replica_id.unique_id, pending

    def picks(self, *arguments: Any) -> set[str]:
        """All first choices for requests that leave nothing behind."""
        found = set()
        for _ in range(20):
            name, pending = self.pick(*arguments)
            self.router._caches._forget(pending.metadata.internal_request_id)
            found.add(name)
        return found


def chat(prompt: Any) -> dict[str, Any]:
    return {"messages": prompt.messages}


def test_the_deployment_of_the_page(publisher: Worker) -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    code = page.partition("Ray cluster -->\n```python\n")[2].partition("```")[0]
    code = code.replace("Qwen/Qwen2.5-VL-3B-Instruct", MODEL)
    code = code.replace("tcp://10.0.0.7:5557", publisher.endpoint)
    code = code.replace("tcp://10.0.0.7:5558", publisher.replay_endpoint)
    names: dict[str, Any] = {}
    exec(compile(code, "engines.md", "exec"), names)  # noqa: S102 - the page is our own
    engine = names["Engine"]
    config = engine._deployment_config.request_router_config
    options = {name: v for name, v in config.request_router_kwargs.items() if name != "model"}
    settings = VllmSettings.from_args(options["engine_args"])
    normalizer = Normalizer.from_pretrained(MODEL, engine_settings=settings)
    publisher.publish(events("BlockStored", pictures(normalizer, 1)[0].blocks))
    fleet = Fleet(publisher, config.get_request_router_class(), **options)
    fleet.a.routing_stats = engine.func_or_class().record_routing_stats()
    fleet.update([fleet.a, fleet.b])
    until(lambda: fleet.picks(chat(picture(0))) == {"a"})
    _, pending = fleet.pick(chat(picture(0)))
    assert len(pending.kwargs["prompt_token_ids"]) > 0


def test_a_prompt_goes_where_its_blocks_are_and_another_picture_does_not(publisher: Worker) -> None:
    publisher.publish(events("BlockStored", picture(0).blocks))
    fleet = Fleet(publisher)
    first = loaded().normalize(messages=picture(0).messages).block_hashes(block_size=BLOCK_SIZE)
    second = loaded().normalize(messages=picture(1).messages).block_hashes(block_size=BLOCK_SIZE)
    until(lambda: fleet.held(first)["a"] == len(first))
    assert fleet.held(second)["a"] <= 1  # the words before the picture
    assert fleet.picks(chat(picture(0))) == {"a"}
    assert fleet.picks(SimpleNamespace(messages=picture(0).messages)) == {"a"}
    assert fleet.picks(chat(picture(1))) == {"a", "b"}
    publisher.publish(events("BlockRemoved", picture(0).blocks))
    until(lambda: fleet.held(first)["a"] == 0)
    assert fleet.picks(chat(picture(0))) == {"a", "b"}


@pytest.mark.parametrize("told", [None, 4 * BLOCK_SIZE])
def test_the_events_tell_the_block_size(publisher: Worker, told: int | None) -> None:
    fleet = Fleet(publisher)
    stats = {**fleet.a.routing_stats[EVENTS_KEY]}
    del stats["block_size"]
    fleet.a.routing_stats = {EVENTS_KEY: stats if told is None else {**stats, "block_size": told}}
    fleet.router._block_size = None
    fleet.update([fleet.a, fleet.b])
    assert fleet.router._block_size == told
    publisher.publish(events("BlockStored", picture(0).blocks))
    until(lambda: fleet.picks(chat(picture(0))) == {"a"})


def test_by_token_ids_alone_another_picture_of_the_size_looks_cached(publisher: Worker) -> None:
    assert picture(0).by_ids == picture(1).by_ids
    publisher.publish(events("BlockStored", picture(0).by_ids))
    fleet = Fleet(publisher, TokenIdRouter)
    until(lambda: fleet.picks(chat(picture(1))) == {"a"})


def test_blocks_are_expected_where_their_prompt_went_for_a_while(publisher: Worker) -> None:
    fleet = Fleet(publisher, expect_seconds=0.5, encoder_cache=0)
    name, pending = fleet.pick(chat(picture(0)))
    assert {fleet.pick(chat(picture(0)))[0] for _ in range(5)} == {name}
    for number in range(fleet.requests):  # it was full, and Ray took the other one
        pending.metadata.internal_request_id = str(number + 1)
        other = fleet.b if name == "a" else fleet.a
        fleet.router.on_request_routed(pending, other.replica_id, None)
    assert fleet.pick(chat(picture(0)))[0] == other.replica_id.unique_id
    until(lambda: not fleet.router._caches.sent(other.replica_id.unique_id))
    assert fleet.picks(chat(picture(0))) == {"a", "b"}


def test_a_picture_goes_where_it_was_encoded(publisher: Worker) -> None:
    publisher.publish(events("BlockStored", picture(0).blocks))
    fleet = Fleet(publisher, expect_seconds=0)
    until(lambda: fleet.picks(chat(picture(0))) == {"a"})
    assert fleet.picks(chat(picture(1))) == {"a", "b"}
    _, pending = fleet.pick(chat(picture(1)))
    fleet.router.on_request_routed(pending, fleet.b.replica_id, None)
    assert fleet.picks(chat(picture(1))) == {"b"}


def test_a_busy_replica_is_passed_over(publisher: Worker) -> None:
    publisher.publish(events("BlockStored", picture(0).blocks))
    prompt = Prompt.of(loaded().normalize(messages=picture(0).messages), BLOCK_SIZE)
    nothing, all_of_it = WorkerState(), WorkerState(held=Blocks(1000), at_hand=Blocks(1000))
    worth = cost(prompt, nothing).total - cost(prompt, all_of_it).total
    assert worth > prompt.items[0].features * 1.9  # neither computed nor encoded
    fleet = Fleet(publisher, request_tokens=worth / 3.5)
    until(lambda: fleet.picks(chat(picture(0))) == {"a"})
    fleet.router.replica_queue_len_cache.update(fleet.b.replica_id, 1)
    fleet.router.replica_queue_len_cache.update(fleet.a.replica_id, 4)
    assert fleet.picks(chat(picture(0))) == {"a"}
    fleet.router.replica_queue_len_cache.update(fleet.a.replica_id, 5)
    assert fleet.picks(chat(picture(0))) == {"b"}


@pytest.mark.parametrize(
    "argument",
    [
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": u}}]}
            ]
        }
        for u in ("https://example.com/a.png", "data:image/png;base64,AAAA")
    ]
    + [{**TEXT, "model": "adapter"}, {**TEXT, "suffix": "x"}, {"prompt": ["a", "b"]}, {"x": 1}, 7],
)
def test_without_an_exact_answer_load_decides(argument: Any, publisher: Worker) -> None:
    fleet = Fleet(publisher)
    fleet.router.replica_queue_len_cache.update(fleet.a.replica_id, 1)
    fleet.router.replica_queue_len_cache.update(fleet.b.replica_id, 2)
    assert fleet.picks(argument) == {"a"}
    fleet.router.replica_queue_len_cache.update(fleet.a.replica_id, 3)
    assert fleet.picks(argument) == {"b"}


def test_a_request_takes_its_token_ids_along(publisher: Worker) -> None:
    fleet = Fleet(publisher, token_ids_kwarg="prompt_token_ids")
    _, pending = fleet.pick(chat(picture(0)))
    routing = loaded().normalize(messages=picture(0).messages)
    assert pending.kwargs["prompt_token_ids"].tolist() == routing.unexpanded_token_ids.tolist()


def test_a_replica_that_is_gone_is_forgotten(publisher: Worker) -> None:
    publisher.publish(events("BlockStored", picture(0).blocks))
    fleet = Fleet(publisher)
    until(lambda: fleet.picks(chat(picture(0))) == {"a"})
    fleet.pick(chat(picture(0)))
    fleet.update([fleet.b])
    hashes = loaded().normalize(messages=picture(0).messages).block_hashes(block_size=BLOCK_SIZE)
    assert not fleet.held(hashes).get("a")
    until(lambda: not fleet.router._caches._index.longest_prefixes(hashes))


def test_what_was_not_looked_at_for_long_counts_for_nothing(publisher: Worker) -> None:
    publisher.publish(events("BlockStored", picture(0).blocks))
    caches = ReplicaCaches(max_staleness=60, expect_seconds=60)
    caches.follow({"a": Endpoints(publisher.endpoint, publisher.replay_endpoint)})
    hashes = loaded().normalize(messages=picture(0).messages).block_hashes(block_size=BLOCK_SIZE)
    until(lambda: caches.longest_prefixes(hashes)["a"])
    caches._max_staleness = -1
    assert not caches.longest_prefixes(hashes)["a"]
    caches.follow({})
