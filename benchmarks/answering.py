"""Loads a model and carries out commands, which are lines of JSON. Any build of mmroute can run it.

It imports the public names of mmroute and its stopwatch alone, so that an older build can run it.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import xxhash

import mmroute
from mmroute.answering.stages import Stopwatch

_ITEMS: Final = {"images": "ImageSize", "videos": "VideoSize", "audios": "AudioLength"}


def main() -> None:
    """Read the setup and then commands, and write the result of each command.

    The first line has ``loading``, the arguments of `Normalizer.from_pretrained`; ``fast_paths``,
    those of `FastPaths`; ``engine``, those of `EngineSettings.from_args`, if there are any;
    and ``hashing``, those of `Routing.block_hashes`.
    """
    setup = json.loads(sys.stdin.readline())
    answering = Answering(_load(setup), setup["hashing"])
    _say("ready")
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

    def __init__(self, normalizer: mmroute.Normalizer, hashing: Mapping[str, Any]) -> None:
        self._hashing = hashing
        self._normalizer = normalizer
        normalizer.stats()  # waits for the encoder
        self._watch = Stopwatch()
        self._watched = replace(self._normalizer, watch=self._watch)

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


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
