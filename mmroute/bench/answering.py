"""Answer timed requests of another process, one in a line. Run as a script by any build of mmroute.

It imports nothing of mmroute but its public face, so that an older build can run it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import mmroute

__all__ = ["main"]


def main() -> None:
    """Read how to load the model, then requests; write what each of them took, in nanoseconds."""
    setup = json.loads(sys.stdin.readline())
    normalizer = mmroute.Normalizer.from_pretrained(
        setup["model"], fast_paths=mmroute.FastPaths(**setup["fast_paths"]), **setup["loading"]
    )
    normalizer.stats()  # waits for the encoder
    watched, watch = _watched(normalizer)
    _say({"build": mmroute.__file__})
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if "images" in request:
            request["images"] = [mmroute.ImageSize(**image) for image in request["images"]]
        # Watches take time themselves: every other request has one.
        if number % 2:
            _say(_answer(watched, watch, request, setup["hashing"]))
        else:
            _say(_answer(normalizer, None, request, setup["hashing"]))


def _watched(normalizer: Any) -> tuple[Any, Any]:
    """The normalizer with a watch, where the build has watches of this kind."""
    if not hasattr(normalizer, "watch"):
        return normalizer, None
    from dataclasses import replace

    from mmroute.stages import Stopwatch

    watch = Stopwatch()
    return replace(normalizer, watch=watch), watch


def _answer(
    normalizer: Any, watch: Any, request: Mapping[str, Any], hashing: Mapping[str, Any]
) -> dict[str, Any]:
    if watch is not None:
        watch.start()
    started, on_the_wall = time.process_time_ns(), time.perf_counter_ns()
    routing = normalizer.normalize(**request)
    passed, whole = time.perf_counter_ns() - on_the_wall, time.process_time_ns() - started
    found: dict[str, Any] = {"digest": "", "refusal": str(routing.reason or "")}
    if not routing.exact:
        return found
    if watch is None:
        found["whole"] = whole
    else:  # which goes by the clock on the wall
        found["without encoding"] = passed - watch.spent().get("encode", 0)
    try:
        started = time.process_time_ns()
        hashes = routing.block_hashes(**hashing).hashes
        found["block hashes"] = time.process_time_ns() - started
    except mmroute.MmrouteError:  # of a request whose images have no names, for example
        hashes = ()
    answered = [routing.token_ids.tobytes(), *hashes]
    found["digest"] = hashlib.sha256(b"".join(map(bytes, answered))).hexdigest()
    return found


def _say(found: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
