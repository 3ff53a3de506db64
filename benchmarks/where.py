"""Where the time of a step goes: its own steps, each alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import xxhash

from benchmarks.page import micro, table
from mmroute import Normalizer
from mmroute.batch import Request
from mmroute.bench.summary import Summary, summarize
from mmroute.engines.vllm.identity import image_identity
from mmroute.engines.vllm.messages import parse_chat
from mmroute.hashing import HashedItem, extra_keys, hash_blocks
from mmroute.hashing.pickle_encoding import encode_blocks
from mmroute.hashing.vllm import Algorithm
from mmroute.prefix_cache import PrefixIndex
from mmroute.request import RequestOptions, checked_images, size_of
from mmroute.request_images import images_of_parts
from mmroute.stages import Stage, Stopwatch, encoding_watched

__all__ = ["hash_shares", "import_shares", "other_shares", "reuse_shares", "tight_loop"]

_ROUNDS = 300
_BLOCK_SIZE = 16
_LARGEST = 7
_OPTIONS = RequestOptions()


def other_shares(normalizer: Normalizer, request: Request) -> list[str]:
    """What lies between the stages."""
    messages = request["messages"]
    given = checked_images(request["images"])
    parts = parse_chat(messages, _OPTIONS).image_parts
    backend, model_id = normalizer.model.backend, normalizer.model.model_id
    images = images_of_parts(parts, given, backend, None)

    def identify() -> None:
        for image in images:
            image_identity(image, mm_processor_kwargs={}, model_id=model_id)

    def take_options() -> None:
        RequestOptions(add_generation_prompt=True, mm_processor_kwargs={}).check()

    return _shares({
        "options taken and checked": take_options,
        "messages checked and taken apart": lambda: parse_chat(messages, _OPTIONS),
        "images given with the request checked": lambda: checked_images(given),
        "images given to their parts": lambda: images_of_parts(parts, given, backend, None),
        "image sizes": lambda: [size_of(image) for image in images],
        "image identities": identify,
    })  # fmt: skip


def tight_loop(normalizer: Normalizer, request: Request) -> Summary:
    """Everything but encoding of one request that is asked again and again."""
    watch = Stopwatch()
    timed = encoding_watched(normalizer, watch)
    times = []
    for _ in range(_ROUNDS):
        watch.start()
        started = time.perf_counter_ns()
        timed.normalize(**request)
        times.append(time.perf_counter_ns() - started - watch.spent()[Stage.ENCODE])
    return summarize(times)


def reuse_shares(encode: Callable[[str], Any], known: str, text: str) -> list[str]:
    """The steps of encoding a text of which the beginning is known.

    Args:
        encode: without a cache of texts.
        known: the beginning.
        text: all of it.
    """
    index: PrefixIndex[str] = PrefixIndex(1 << 26)
    beginning = text[: len(known)]
    ids = encode(text)
    return _shares({
        "looking for a known beginning (reads the text)": lambda: index.find(text),
        "comparing it character by character": lambda: known == beginning,
        "encoding the new end alone": lambda: encode(text[len(known) :]),
        "copying the IDs together": lambda: np.concatenate((ids[:-500], ids[-500:])),
    })  # fmt: skip


def import_shares() -> list[str]:
    """Which packages the import of mmroute spends its time in, by Python's own account."""
    command = [sys.executable, "-X", "importtime", "-c", "import mmroute"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    spent: dict[str, int] = {}
    for line in done.stderr.partition("| site\n")[2].splitlines():
        own, _, name = (cell.strip() for cell in line.removeprefix("import time:").split("|"))
        package = name.partition(".")[0]
        spent[package] = spent.get(package, 0) + int(own)
    largest = sorted(spent.items(), key=lambda pair: -pair[1])[:_LARGEST]
    rows = [(package, micro(time_spent)) for package, time_spent in largest]
    rows.append(("all others", micro(sum(spent.values()) - sum(t for _, t in largest))))
    return table(("package, its own modules", "time"), rows)


def hash_shares(normalizer: Normalizer, request: Request) -> list[str]:
    """The steps of block hashes."""
    routing = normalizer.normalize(**request)
    count = len(routing.token_ids) // _BLOCK_SIZE
    ids = routing.token_ids[: count * _BLOCK_SIZE]
    items = [
        HashedItem(identity.value if identity else "", p.offset, p.length)
        for p, identity in zip(routing.placeholders, routing.image_identities, strict=True)
    ]
    keys = extra_keys(items, num_blocks=count, block_size=_BLOCK_SIZE)
    steps: dict[str, Callable[[], Any]] = {
        "extra keys of all blocks": lambda: extra_keys(
            items, num_blocks=count, block_size=_BLOCK_SIZE
        ),
        "layout of all blocks (pickle)": lambda: list(encode_blocks(ids, keys, parent_size=16)),
    }
    for name, digest, size in (
        (Algorithm.XXHASH, xxhash.xxh3_128_digest, 16),
        (Algorithm.SHA256, _sha256, 32),
    ):
        halves = list(encode_blocks(ids, keys, parent_size=size))
        joined = [bytes(size).join(half) for half in halves]
        steps[f"joining each with its parent, {name}"] = partial(_join, halves, bytes(size))
        steps[f"digests alone, {name}"] = partial(_digest, joined, digest)
        steps[f"all of it but extra keys, {name}"] = partial(
            hash_blocks, ids, keys, algorithm=name, block_size=_BLOCK_SIZE, seed="0"
        )
    return _shares(steps)


def _join(halves: list[tuple[bytes, bytes]], parent: bytes) -> list[bytes]:
    return [parent.join(half) for half in halves]


def _digest(joined: list[bytes], digest: Callable[[bytes], bytes]) -> list[bytes]:
    return [digest(data) for data in joined]


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _shares(steps: Mapping[str, Callable[[], Any]]) -> list[str]:
    rows = []
    for name, step in steps.items():
        times = []
        for _ in range(_ROUNDS):
            started = time.perf_counter_ns()
            step()
            times.append(time.perf_counter_ns() - started)
        rows.append((name, micro(summarize(times).p50)))
    return table(("step, alone", "p50"), rows)
