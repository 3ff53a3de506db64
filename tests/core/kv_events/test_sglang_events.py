"""SGLang's events: what its own structs encode is read, and the index holds what its cache does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import paths
import pytest
from comparison import read_vectors
from small_models import SMALL_MODELS, write_model

from mmroute import EventsError, InexactError, Normalizer
from mmroute.engines.sglang.hashes import SglangHashes, hash_pages
from mmroute.hashing import PageHashes
from mmroute.kv_events import (
    BlockIndex,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Received,
    WorkerRank,
    decode_events,
    holders,
)
from mmroute.kv_events.streams import Streams
from mmroute.requests.request import Lora

META, VECTORS = read_vectors(paths.VECTORS / "kv_events" / "sglang.jsonl")
STREAMS = sorted({case["stream"] for case in VECTORS if "stream" in case})
RANK = WorkerRank("w", 0)
PAGE = 16

Json = dict[str, Any]


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(holders, "compiled", lambda: False)


def payload_of(hashes: PageHashes) -> bytes:
    """A batch as SGLang's encoder writes it: no field that is None is there."""
    stored = {
        "type": "BlockStored", "block_hashes": hashes.event_ints(), "parent_block_hash": None,
        "token_ids": [0] * len(hashes) * hashes.page_size, "block_size": hashes.page_size,
        "lora_id": None, "medium": "GPU",
    }  # fmt: skip
    return msgspec.msgpack.encode([1.5, [stored], 0])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> PageHashes:
    """The hashes of a text, of which some are negative numbers."""
    model = write_model(SMALL_MODELS["small-qwen2.5-vl"](), tmp_path_factory.mktemp("model"))
    normalizer = Normalizer.from_pretrained(model, backend="sglang")
    hashes = normalizer.normalize(prompt="What is a router? " * 40).page_hashes(PAGE)
    assert min(hashes.event_ints()) < 0 < max(hashes.event_ints())
    return hashes


def test_vectors_are_of_the_version_that_is_matched() -> None:
    assert META["backend_version"] == "0.5.23"
    assert STREAMS == ["pages", "pairs"]


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["id"])
def test_decodes_what_sglang_encodes(case: Json) -> None:
    ts, events, rank = case["expect"]
    batch = decode_events(bytes.fromhex(case["payload"]))
    assert (batch.ts, batch.data_parallel_rank, len(batch.events)) == (ts, rank, len(events))
    for found, sent in zip(batch.events, events, strict=True):
        assert type(found).__name__ == sent["type"]
        if isinstance(found, BlockStored):
            assert tokens_of(found) == sent.pop("token_ids")
            assert (found.group_idx, found.ownership) == (None, None)
            as_vllm = "lora_name" in sent and min(sent["block_hashes"]) >= 0  # which tells no salt
            first = sent["parent_block_hash"] is None and not as_vllm
            assert salts_of(found) == (sent.get("cache_salt") if first else None)
        if isinstance(found, BlockStored | BlockRemoved):
            assert list(found.block_hashes) == sent["block_hashes"]
            assert found.medium == sent.get("medium")
        for name in ("parent_block_hash", "block_size", "lora_id", "lora_name", "session_id"):
            assert getattr(found, name, None) == sent.get(name)


def salts_of(event: BlockStored) -> Any:
    """The salt that an event tells as vLLM does, of the first page alone; None for none."""
    (first, *later) = event.extra_keys or (None,)
    assert not any(later)
    return first and first[0]


@pytest.mark.parametrize(
    "case", [case for case in VECTORS if "namespace" in case], ids=lambda case: case["id"]
)
def test_numbers_cover_adapters_and_in_dynamos_format_salts(case: Json) -> None:
    name, path = case["namespace"]["adapter"] or ("", "")
    hashing = SglangHashes(dynamo=case["namespace"]["dynamo"], loras={name: path})
    prompt: Any = SimpleNamespace(
        token_ids=np.arange(12),
        identities=(),
        lora=Lora(name, path) if name else None,
        cache_salt=case["namespace"]["cache_salt"],
    )
    (stored,) = case["expect"][1]
    assert hashing.of(prompt, block_size=4).event_ints() == stored["block_hashes"]


def test_an_adapter_that_the_line_does_not_name_has_no_page_hashes() -> None:
    prompt: Any = SimpleNamespace(lora=Lora("sql", "adapters/sql"))
    with pytest.raises(InexactError, match="--lora-paths"):
        SglangHashes().of(prompt, block_size=4)


def tokens_of(event: BlockStored) -> list[Any]:
    """The tokens as SGLang writes them: numbers, or pairs of a token and the next."""
    tokens = list(event.token_ids)
    if event.lookahead_token_ids is None:
        return tokens
    size = event.block_size
    following = [
        token
        for page, ahead in enumerate(event.lookahead_token_ids)
        for token in (*tokens[page * size + 1 : (page + 1) * size], *ahead)
    ]
    return [list(pair) for pair in zip(tokens, following, strict=True)]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.usefixtures("tables")
def test_the_index_holds_what_the_prefix_cache_does(stream: str) -> None:
    index = BlockIndex()
    for case in VECTORS:
        if case.get("stream") != stream:
            continue
        index.apply("w", bytes.fromhex(case["payload"]))
        for prefix in case["prefixes"]:
            found = index.longest_prefixes(prefix["hashes"])
            assert found == {RANK: prefix["length"]}, (case["id"], prefix["prompt"])


def test_the_hashes_of_pages_are_those_that_the_cache_sent() -> None:
    case = next(case for case in VECTORS if case["id"].startswith("pages: stored the first"))
    hashes = hash_pages(np.arange(12), page_size=4)
    index = BlockIndex()
    index.apply("w", bytes.fromhex(case["payload"]))
    assert index.longest_prefixes(hashes) == {RANK: 3}
    assert index.block_size("w") == 4


@pytest.mark.usefixtures("tables")
def test_pages_are_found_in_every_form(pages: PageHashes) -> None:
    index = BlockIndex()
    index.apply("w", payload_of(pages))
    numbers = pages.event_ints()
    for form in (pages, numbers, [number % (1 << 64) for number in numbers], iter(numbers)):
        assert index.longest_prefixes(form) == {RANK: len(pages)}
    assert index.longest_prefixes(pages, medium="GPU") == {RANK: len(pages)}
    assert list(index.residencies(RANK, pages).values()) == [(True,) * len(pages)]


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("as_batch", [False, True])
def test_a_form_that_would_never_be_found_is_refused(
    pages: PageHashes, as_batch: bool, snapshot: bool
) -> None:
    index = BlockIndex()
    index.apply("w", decode_events(payload_of(pages)) if as_batch else payload_of(pages))
    if snapshot:
        index = BlockIndex.from_snapshot(index.snapshot())
    for form in (pages.hashes, list(pages), [int.from_bytes(digest, "big") for digest in pages]):
        for ask in (
            index.longest_prefixes,
            lambda hashes: index.residencies(RANK, hashes),
            lambda hashes: index.reused_tokens(hashes, num_tokens=99, block_size=PAGE),
        ):
            with pytest.raises(ValueError, match="event_ints"):
                ask(form)
    assert index.longest_prefixes(pages) == {RANK: len(pages)}


def test_blocks_of_vllm_are_found_beside_pages(pages: PageHashes, tmp_path: Path) -> None:
    model = write_model(SMALL_MODELS["small-qwen2.5-vl"](), tmp_path / "model")
    blocks = Normalizer.from_pretrained(model).normalize(prompt="Hello " * 99).block_hashes()
    stored = BlockStored(blocks.hashes, None, (), blocks.block_size, None, "GPU", None)
    index = BlockIndex()
    index.apply("w", payload_of(pages))
    index.apply("v", EventBatch(1.5, (stored,), 0))
    assert index.longest_prefixes(blocks) == {RANK: 0, WorkerRank("v", 0): len(blocks)}
    assert index.longest_prefixes(pages) == {RANK: len(pages), WorkerRank("v", 0): 0}


def test_a_stream_of_them_loses_nothing(pages: PageHashes) -> None:
    index, streams = BlockIndex(), Streams(replays=False)
    for number in range(3):
        frames = [b"", number.to_bytes(8, "big"), payload_of(pages)]
        messages = list(streams.received(frames))
        assert [type(message) for message in messages][-1:] == [Received]
        for message in messages:
            index.apply("w", message)
    assert index.longest_prefixes(pages) == {RANK: len(pages)}
    assert index.health().workers["w"].lost_batches == 0


def test_numbers_beside_pairs_are_malformed() -> None:
    stored = {
        "type": "BlockStored", "block_hashes": [-1], "parent_block_hash": None,
        "token_ids": [[1, 2], 3], "block_size": 2, "lora_id": None,
    }  # fmt: skip
    with pytest.raises(EventsError, match="no KV event batch"):
        decode_events(msgspec.msgpack.encode([1.5, [stored], 0]))
