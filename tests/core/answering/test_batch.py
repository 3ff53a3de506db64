"""Many requests at once, and normalizers that go to other processes."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmroute import ImageSize, Normalizer, Request, Routing
from mmroute.answering import batch
from mmroute.errors import InexactError, Reason
from mmroute.net.links import ImageLinks
from mmroute.reuse.fast_paths import FastPaths

MODEL = "small-qwen2.5-vl"
THREADS = (1, 2, 4)


def request(number: int) -> dict[str, Any]:
    """Requests of all kinds, of which no two have the same answer, but for the refused."""
    if number % 7 == 3:
        return {"prompt": "no image", "images": [ImageSize(28, 28)]}
    content: list[dict[str, Any]] = [{"type": "text", "text": f"what is picture {number}"}]
    images = [ImageSize(28 * (1 + number % 5), 56, uuid=str(number))] * (number % 3)
    content += [{"type": "image"} for _ in images]
    return {"messages": [{"role": "user", "content": content}], "images": images}


def answer(routing: Routing) -> tuple[Any, ...]:
    if not routing.exact:
        return routing.reason, routing.message
    hashes = routing.block_hashes(block_size=4).hex()
    return routing.token_ids.tolist(), routing.placeholders, routing.identities, hashes


@pytest.mark.parametrize("threads", [*THREADS, None])
def test_many_answers_are_the_single_ones_in_order(
    threads: int | None, normalizer: Callable[[str], Normalizer]
) -> None:
    model = normalizer(MODEL)
    requests = [request(number) for number in range(100)]
    expected = [answer(model.normalize(**each)) for each in requests]
    found = [answer(each) for each in model.normalize_many(iter(requests), threads=threads)]
    assert found == expected
    assert len({str(each) for each in expected}) > 80
    assert sum(each[0] == Reason.PLACEHOLDER_COUNT_MISMATCH for each in expected) > 13


def test_as_many_threads_as_cores_where_they_do_not_wait_for_each_other(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    in_threads = batch._in_threads

    def counting(normalize: Any, requests: Any, threads: int) -> Iterator[Routing]:
        asked.append(threads)
        return in_threads(normalize, requests, threads)

    monkeypatch.setattr(batch, "_in_threads", counting)
    monkeypatch.setattr(batch, "_has_global_lock", lambda: False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert len(list(normalizer(MODEL).normalize_many([request(0)] * 5))) == 5
    monkeypatch.setattr(batch, "_has_global_lock", lambda: True)
    assert len(list(normalizer(MODEL).normalize_many([request(0)] * 5))) == 5
    assert asked == [3]


@pytest.mark.parametrize("threads", THREADS)
def test_no_request_at_all(threads: int, normalizer: Callable[[str], Normalizer]) -> None:
    assert list(normalizer(MODEL).normalize_many([], threads=threads)) == []


@pytest.mark.parametrize("threads", THREADS)
def test_requests_are_read_while_answers_are_taken(
    threads: int, normalizer: Callable[[str], Normalizer]
) -> None:
    """An endless stream of them is none too many, and little of it is read ahead."""
    read: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            read.append(number)
            yield request(number)

    model = normalizer(MODEL)
    answers = model.normalize_many(endless(), threads=threads)
    assert read == []
    found = [answer(each) for each in itertools.islice(answers, 200)]
    assert found == [answer(model.normalize(**request(number))) for number in range(200)]
    assert len(read) == 200 if threads == 1 else len(read) < 2000


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_too_few(threads: int, normalizer: Callable[[str], Normalizer]) -> None:
    with pytest.raises(ValueError, match=f"threads must be at least 1, found {threads}"):
        normalizer(MODEL).normalize_many([], threads=threads)


class BrokenSourceError(Exception):
    """What the requests' source raises."""


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_of_the_source_reaches_who_takes_the_answers(
    threads: int, normalizer: Callable[[str], Normalizer]
) -> None:
    def breaks_off() -> Iterator[dict[str, Any]]:
        yield from map(request, range(1200))
        raise BrokenSourceError

    taken: list[Routing] = []
    answers = normalizer(MODEL).normalize_many(breaks_off(), threads=threads)
    with pytest.raises(BrokenSourceError):
        taken.extend(answers)
    assert len(taken) == 1200 if threads == 1 else len(taken) > 0
    assert [answer(each) for each in taken[:100]] == [
        answer(normalizer(MODEL).normalize(**request(number))) for number in range(len(taken[:100]))
    ]


@pytest.mark.parametrize("threads", THREADS)
def test_an_argument_that_normalize_does_not_have(
    threads: int, normalizer: Callable[[str], Normalizer]
) -> None:
    answers = normalizer(MODEL).normalize_many([{"promt": "Hi"}], threads=threads)
    with pytest.raises(TypeError, match="no field 'promt'; did you mean 'prompt'"):
        next(answers)


# Other processes


def test_a_pickled_normalizer_is_the_same(small_model: Callable[[str], Path]) -> None:
    normalizer = Normalizer.from_pretrained(
        small_model(MODEL),
        model_id="served/under-this-name",
        links=ImageLinks(hosts=("images.example",)),
        fast_paths=FastPaths(encoder="tokenizers", text_cache_bytes=0, hash_cache_bytes=0),
    )
    copy = pickle.loads(pickle.dumps(normalizer))
    assert type(copy) is Normalizer
    assert copy.model.model_id == "served/under-this-name"
    assert copy.links == normalizer.links
    assert copy.stats() == normalizer.stats()
    for number in range(20):
        once, again = (each.normalize(**request(number)) for each in (normalizer, copy))
        assert answer(once) == answer(again)


def test_a_pickled_normalizer_can_be_pickled(small_model: Callable[[str], Path]) -> None:
    data = pickle.dumps(Normalizer.from_pretrained(small_model(MODEL)))
    assert pickle.dumps(pickle.loads(data)) == data


def test_what_an_inexact_routing_lacks_is_missing(normalizer: Callable[[str], Normalizer]) -> None:
    inexact = normalizer(MODEL).normalize(prompt="")
    assert not hasattr(inexact, "token_ids")
    public = [name for name in dir(inexact) if not name.startswith("_")]
    assert {name for name in public if not hasattr(inexact, name)} == {
        "token_ids",
        "unexpanded_token_ids",
    }
    assert "empty_prompt" in repr(inexact)
    with pytest.raises(InexactError) as asked:
        inexact.token_ids  # noqa: B018 - it is the access that raises
    assert pickle.loads(pickle.dumps(asked.value)).reason is asked.value.reason


def test_what_is_shown_is_short(normalizer: Callable[[str], Normalizer]) -> None:
    loaded = normalizer(MODEL)
    routing = loaded.normalize(prompt="<|vision_start|><|image_pad|><|vision_end|>" + "x" * 9999,
                               images=[ImageSize(1280, 720)])  # fmt: skip
    request = Request(prompt="x" * 9999)
    for shown in (loaded, loaded.model, loaded.model.settings, routing, routing.items, request):
        assert len(repr(shown)) < 200


def test_a_normalizer_made_by_hand_cannot_be_pickled(
    normalizer: Callable[[str], Normalizer],
) -> None:
    by_hand = Normalizer(normalizer(MODEL).model)
    with pytest.raises(TypeError, match="only a Normalizer made by from_pretrained"):
        pickle.dumps(by_hand)


def test_an_answer_can_be_sent_to_another_process(
    normalizer: Callable[[str], Normalizer],
) -> None:
    for number in range(4):
        routing = normalizer(MODEL).normalize(**request(number))
        again = pickle.loads(pickle.dumps(routing))
        assert answer(again) == answer(routing)
