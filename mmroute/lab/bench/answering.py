"""Loads a model and carries out commands, which are lines of JSON. Any build of mmroute can run it.

It imports the public names of mmroute and its stopwatch alone, so that an older build can run it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import xxhash

import mmroute
from mmroute.answering.stages import Stopwatch

_ITEMS: Final = {"images": "ImageSize", "videos": "VideoSize", "audios": "AudioLength"}


def main(import_seconds: float) -> None:
    """Read the setup and then commands, and write the result of each command.

    The first line has ``loading``, the arguments of `Normalizer.from_pretrained`; ``fast_paths``,
    those of `FastPaths`; ``engine``, those of `EngineSettings.from_args`, if there are any;
    ``hashing``, those of `Routing.block_hashes`; and ``core``, if the process is bound to a core.
    """
    imported = rss_bytes()
    setup = json.loads(sys.stdin.readline())
    if "core" in setup and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {setup["core"]})  # it also binds threads that are started later
    started = time.perf_counter()
    answering = Answering(partial(_load, setup), setup["hashing"])
    startup = {
        "import_seconds": import_seconds,
        "load_seconds": time.perf_counter() - started,
        "encoder": answering.counters()["encoder"],  # waits for the encoder
        "ready_seconds": time.perf_counter() - started,
        "rss_imported_bytes": imported,
        "rss_loaded_bytes": rss_bytes(),
    }
    _say(startup)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        _say(getattr(answering, command)(*arguments))


def _load(setup: Mapping[str, Any]) -> mmroute.Normalizer:
    arguments = {**setup["loading"], "fast_paths": mmroute.FastPaths(**setup["fast_paths"])}
    if "engine" in setup:
        arguments["engine_settings"] = mmroute.EngineSettings.from_args(**setup["engine"])
    normalizer: mmroute.Normalizer = mmroute.Normalizer.from_pretrained(**arguments)
    return normalizer


class Answering:
    """A loaded model. Its methods are the commands, whose arguments and results are JSON."""

    def __init__(self, load: Callable[[], mmroute.Normalizer], hashing: Mapping[str, Any]) -> None:
        self._load = load
        self._hashing = hashing
        self._normalizer = load()
        self._watch = Stopwatch()
        self._watched = replace(self._normalizer, watch=self._watch)
        self._prepared: list[dict[str, Any]] = []

    def load_again(self) -> int:
        """Resident memory with the model loaded a second time, in bytes."""
        again = self._load()
        again.stats()
        return rss_bytes()

    def counters(self) -> dict[str, Any]:
        """The encoder, the reason for its choice, and the counters of the caches."""
        stats = self._normalizer.stats()
        encoder = stats.encoder
        return {
            "encoder": encoder.engine if encoder else "",
            "why": encoder.why if encoder else "",
            "texts": encoder.reuse if encoder else None,
            "hashes": stats.hashes,
        }

    def answer(self, request: Mapping[str, Any], watched: bool) -> dict[str, Any]:
        """Answer a request, and time it."""
        fields = _fields(request)
        normalizer = self._watched if watched else self._normalizer
        if watched:
            self._watch.start()
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        routing = normalizer.normalize(**fields)
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        if not routing.exact:
            return {"refusal": [str(routing.reason), routing.message]}
        measured: dict[str, Any] = {
            "wall": wall,
            "cpu": cpu,
            "stages": self._watch.spent() if watched else None,
            "token_ids": len(routing.token_ids),
            "items": len(routing.placeholders),
            "digest": _digest(routing),
        }
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        try:
            hashes = routing.block_hashes(**self._hashing).hashes
        except mmroute.MmrouteError as error:  # for example if images have no identities
            return {**measured, "hashes": f"{error.reason}: {error}"}
        measured["hash_wall"] = time.perf_counter_ns() - wall
        measured["hash_cpu"] = time.process_time_ns() - cpu
        measured["hashes"] = xxhash.xxh3_128_hexdigest(b"".join(hashes))
        return measured

    def prepare(
        self, untimed: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]]
    ) -> None:
        """Answer the untimed requests, and keep the others for `answer_prepared`."""
        for request in untimed:
            self._normalizer.normalize(**_fields(request))
        self._prepared = list(map(_fields, requests))
        self.quiet()

    def answer_prepared(self) -> tuple[float, list[str]]:
        """Answer all prepared requests; the seconds that took, and the digests of the answers."""
        normalize = self._normalizer.normalize
        started = time.perf_counter()
        # Computing digests takes less time than allocating memory for all answers.
        digests = [_digest(normalize(**request)) for request in self._prepared]
        return time.perf_counter() - started, digests

    def quiet(self) -> None:
        """Keep the garbage collector from scanning the objects that exist now."""
        gc.collect()
        gc.freeze()


def _fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Normalizer.normalize` in JSON."""
    fields = dict(request)
    for name in _ITEMS.keys() & request.keys():
        make = getattr(mmroute, _ITEMS[name])
        fields[name] = request[name] and [make(**item) for item in request[name]]
    if request.get("lora"):
        fields["lora"] = mmroute.Lora(**request["lora"])
    return fields


def _digest(routing: mmroute.Routing) -> str:
    """A digest of an answer, so that answers can be compared without being kept."""
    placeholders = str([(each.offset, each.length) for each in routing.placeholders])
    return xxhash.xxh3_128_hexdigest(routing.token_ids.tobytes() + placeholders.encode())


def rss_bytes() -> int:
    """Resident memory of this process in bytes; its peak if the system has no better figure."""
    import resource  # missing on Windows

    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
