"""The watch finds every break of a worker, and none where there is none."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mmroute import ImageSize, InexactError, Normalizer, Reason, Routing
from mmroute.engine import EngineSettings
from mmroute.hashing import event_extra_keys
from mmroute.kv_events import BlockIndex, Lost, Outcome, Restarted, Source, State, Watch, Watched
from mmroute.kv_events.watch import Prediction

SIZE = 16
OF = Watched("w", "m", "")
WORDS = [chr(at) * 2 + " " for at in range(ord("a"), ord("z"))]


class Worker:
    """An engine whose answers are another normalizer's: it computes a prompt and announces it."""

    def __init__(self, normalizer: Normalizer, size: int = SIZE, seed: str | None = None) -> None:
        self.normalizer, self.size, self.seed = normalizer, size, seed
        self.held: dict[bytes, None] = {}
        self.random = random.Random(0)

    def serve(self, request: dict[str, Any], *, generates: int = 0) -> list[bytes]:
        """The payloads of the events of a request, in parts as large prompts are computed."""
        routing = self.normalizer.normalize(**request)
        hashes = list(routing.block_hashes(block_size=self.size, seed=self.seed))
        keys = event_extra_keys(routing.extra_keys(block_size=self.size)) or []
        ids = routing.token_ids.tolist()
        new = [at for at, block in enumerate(hashes) if block not in self.held]
        self.held.update(dict.fromkeys(hashes))
        payloads = []
        for part in (new[:6], new[6:]):
            if part:
                parent = hashes[part[0] - 1] if part[0] else None
                tokens = ids[part[0] * self.size : (part[-1] + 1) * self.size]
                payloads.append(self.stored([hashes[at] for at in part], parent, tokens,
                                            [keys[at] for at in part]))  # fmt: skip
        parent = hashes[-1] if hashes else None
        for _ in range(generates if new and hashes else 0):
            block = self.random.randbytes(32)
            tokens = [self.random.randrange(250) for _ in range(self.size)]
            payloads.append(self.stored([block], parent, tokens, [None]))
            parent = block
        return payloads

    def stored(
        self, hashes: list[bytes], parent: bytes | None, ids: list[int], keys: list[Any]
    ) -> bytes:
        event = {
            "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
            "token_ids": ids, "block_size": self.size, "lora_id": None, "medium": "GPU",
            "lora_name": None, "extra_keys": keys, "group_idx": 0,
        }  # fmt: skip
        return msgspec.msgpack.encode([1.5, [event], 0])

    def evict(self, count: int) -> bytes:
        gone = list(self.held)[:count]
        for block in gone:
            del self.held[block]
        event = {"type": "BlockRemoved", "block_hashes": gone, "medium": "GPU", "group_idx": 0}
        return msgspec.msgpack.encode([1.5, [event], 0])


class Router:
    def __init__(self, normalizer: Normalizer, *, hashes: bool = False, acts: bool = True) -> None:
        self.normalizer, self.hashes = normalizer, hashes
        self.index = BlockIndex(by_content=True)
        self.watch = Watch(self.index, acts=acts)

    def send(self, request: dict[str, Any]) -> Prediction | None:
        routing = self.normalizer.normalize(**request)
        hashes = routing.block_hashes(block_size=SIZE).event_ints() if self.hashes else None
        return self.watch.sent("w", routing, SIZE, model="m", hashes=hashes)

    def hear(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self.index.apply("w", payload)

    @property
    def state(self) -> State:
        states = self.watch.states()
        return states[OF].state if OF in states else State.UNPROVED


def question(draw: random.Random, *, image: bool = False, turns: int = 1) -> dict[str, Any]:
    """A chat of a few sentences, with a picture of its own."""
    messages: list[dict[str, Any]] = []
    for _ in range(turns):
        text = "".join(draw.choices(WORDS, k=draw.randint(30, 120)))
        content = [{"type": "image"}] * (image and not messages) + [{"type": "text", "text": text}]
        messages.append({"role": "user", "content": content})
    images = [ImageSize(draw.randint(200, 900), draw.randint(200, 900), uuid=text)] if image else []
    return {"messages": messages, "images": images}


@pytest.fixture(scope="module")
def qwen(small_model: Callable[[str], Path]) -> Normalizer:
    return Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), model_id="m")


@pytest.fixture
def router(qwen: Normalizer) -> Router:
    return Router(qwen)


def other(qwen: Normalizer, line: str = "", **more: Any) -> Normalizer:
    return qwen.matching("vllm", engine_settings=EngineSettings.from_args(line), **more)


def test_equal_requests_prove_a_worker(router: Router, qwen: Normalizer) -> None:
    worker, draw = Worker(qwen), random.Random(1)
    for count in range(20):
        assert router.state is State.UNPROVED
        request = question(draw, image=bool(count % 2))
        router.send(request)
        router.hear(worker.serve(request, generates=2))
    assert router.watch.states()[OF].counts == {Outcome.EQUAL: 20}
    assert router.watch.states()[OF].state is State.PROVED
    router.send(request)
    assert router.watch.states()[OF].counts[Outcome.HELD] == 1
    router.index.apply("w", Restarted(Source("", 0)))
    assert router.state is State.UNPROVED


BREAKS: dict[str, tuple[Callable[[Normalizer], Worker], str]] = {
    "block size": (
        lambda n: Worker(n, size=32),
        "blocks have 32 tokens, and were taken to have 16",
    ),
    "seed": (lambda n: Worker(n, seed="1"), "its hash is not"),
    "pixels": (
        lambda n: Worker(other(n, """--mm-processor-kwargs '{"max_pixels": 20000}'""")),
        "in item 1",
    ),
    "template": (
        lambda n: Worker(other(n, """--chat-template "{{ 'Now ' + messages | string }}" """)),
        "token 0 of",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_found(qwen: Normalizer, name: str, caplog: pytest.LogCaptureFixture) -> None:
    broken, difference = BREAKS[name]
    router, worker, draw = Router(qwen, hashes=True), broken(qwen), random.Random(1)
    with caplog.at_level(logging.INFO, "mmroute.kv_events.watch"):
        for _ in range(50):
            request = question(draw, image=True)
            router.send(request)
            router.hear(worker.serve(request, generates=1))
    assert router.state is State.DIFFERS
    assert difference in router.watch.states()[OF].difference
    assert len(caplog.records) == 1
    with pytest.raises(InexactError, match=difference) as refused:
        router.watch.check("w", "m")
    assert refused.value.reason is Reason.ENGINE_DIFFERS
    router.watch.check("v", "m")


def test_another_identity_is_found(qwen: Normalizer) -> None:
    """The same tokens, and other pictures behind them."""
    router, worker, draw = Router(qwen), Worker(qwen), random.Random(1)
    for _ in range(50):
        request = question(draw, image=True)
        router.send(request)
        (image,) = request["images"]
        renamed = [ImageSize(image.width, image.height, uuid="other " + image.uuid)]
        router.hear(worker.serve(request | {"images": renamed}))
    assert router.state is State.DIFFERS
    assert "the identity of an item differs" in router.watch.states()[OF].difference


def test_a_worker_that_was_put_right_is_proved_again(qwen: Normalizer) -> None:
    router, draw = Router(qwen), random.Random(1)
    for seed in ("wrong", "right"):
        worker = BREAKS["pixels"][0](qwen) if seed == "wrong" else Worker(qwen)
        for _ in range(50):
            request = question(draw, image=True)
            router.send(request)
            router.hear(worker.serve(request))
        assert router.state is (State.DIFFERS if seed == "wrong" else State.PROVED)
        router.index.apply("w", Restarted(Source("", 0)))
    router.watch.check("w", "m")


def test_texts_do_not_prove_what_differs_in_pictures(qwen: Normalizer) -> None:
    router, draw = Router(qwen), random.Random(1)
    worker = BREAKS["pixels"][0](qwen)
    for count in range(160):
        request = question(draw, image=count < 20)
        router.send(request)
        router.hear(worker.serve(request))
    assert router.state is State.DIFFERS


@pytest.mark.parametrize("seed", range(4))
def test_5000_requests_without_a_break_never_differ(qwen: Normalizer, seed: int) -> None:
    """Turns of conversations, evictions, failures, lost batches, and requests of other routers."""
    router, worker, draw = Router(qwen, hashes=True), Worker(qwen), random.Random(seed)
    asked = [question(draw, image=draw.random() < 0.3, turns=3) for _ in range(40)]
    waiting: list[dict[str, Any]] = []
    for _ in range(5000 // 4):
        whole = draw.choice(asked)
        request = whole | {"messages": whole["messages"][: draw.randint(1, 3)]}
        if draw.random() < 0.1:
            asked[draw.randrange(len(asked))] = question(draw, image=draw.random() < 0.3, turns=3)
        if draw.random() < 0.9:  # else it is another router's
            router.send(request)
        if draw.random() < 0.95:  # else it fails, or goes to another worker
            waiting.append(request)
        if len(waiting) >= 8:
            served = worker.serve(waiting.pop(draw.randrange(4)), generates=draw.randrange(3))
            if draw.random() < 0.995:
                router.hear(served)
            else:
                router.index.apply("w", Lost(Source("", 0), 0, 0, "lost", ""))
        if len(worker.held) > 2000:
            router.hear([worker.evict(500)])
        assert router.state is not State.DIFFERS
    assert router.watch.states()[OF].counts[Outcome.EQUAL] > 100


def test_the_answers_of_workers_are_counted(router: Router, qwen: Normalizer) -> None:
    """Also of those whose prompts were announced before they answered."""
    draw, worker = random.Random(1), Worker(qwen)
    for predicted, cached in ((64, 32), (32, 64), (32, 32), (32, None)):
        request = question(draw)
        prediction = router.send(request)
        assert prediction is not None
        if cached is not None:
            router.hear(worker.serve(request))
        router.watch.answered(prediction, predicted, cached)
    counts = {Outcome.EQUAL: 3, Outcome.EVICTED: 1, Outcome.UNHEARD: 1, Outcome.UNKNOWN: 1}
    assert router.watch.states()[OF].counts == counts


def test_a_prompt_that_is_announced_while_it_is_sent_again_is_held(
    router: Router, qwen: Normalizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, holds = question(random.Random(1)), router.index.holds

    def announced_after(worker: str, key: int) -> bool:
        is_held = holds(worker, key)
        router.hear(Worker(qwen).serve(request))
        return is_held

    router.send(request)
    monkeypatch.setattr(router.index, "holds", announced_after)
    router.send(request)
    assert router.watch.states()[OF].counts == {Outcome.EQUAL: 1, Outcome.HELD: 1}


def test_a_request_sent_before_events_were_lost_stands_for_none_after_it(
    router: Router, qwen: Normalizer
) -> None:
    draw, worker = random.Random(1), Worker(qwen)
    before = router.send(question(draw))
    assert before is not None
    router.index.apply("w", Lost(Source("", 0), 0, 0, "lost", ""))
    router.send(request := question(draw))
    router.watch.answered(before, 0, None)
    router.hear(worker.serve(request))
    counts = {Outcome.UNKNOWN: 1, Outcome.EQUAL: 1}
    assert router.watch.states()[OF].counts == counts


def test_memory_is_bounded_and_prompts_without_blocks_are_passed_over(
    router: Router, qwen: Normalizer
) -> None:
    draw = random.Random(1)
    for _ in range(300):
        router.send(question(draw))
    known = router.watch._workers["w"]
    assert len(known.waiting) <= 256
    assert len(known.by_last) <= 256
    assert router.watch.sent("w", qwen.normalize(prompt="a"), SIZE) is None


def test_a_watch_needs_an_index_by_content() -> None:
    with pytest.raises(ValueError, match="by_content"):
        Watch(BlockIndex())
    routing = Routing(reason=Reason.INVALID_REQUEST)
    with pytest.raises(InexactError):
        Watch(BlockIndex(by_content=True)).sent("w", routing, SIZE)
