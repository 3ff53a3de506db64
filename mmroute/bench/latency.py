"""Measure the latency of a mix of requests, whole and by stage; and what loading a model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.answering.stages import Stage
from mmroute.bench.children import Child, in_turns
from mmroute.bench.mixes import Mix
from mmroute.errors import InexactError, Reason
from mmroute.reuse.fast_paths import CacheStats


@dataclass(frozen=True, slots=True)
class Hashing:
    """The settings of block hashes.

    Attributes:
        algorithm: the engine's ``--prefix-caching-hash-algo``.
        block_size: tokens.
        seed: the engine's PYTHONHASHSEED.
    """

    algorithm: str = "sha256"
    block_size: int = 16
    seed: str | None = "0"


@dataclass(frozen=True, slots=True)
class Summary:
    """Percentiles of one kind of measurement.

    Attributes:
        p50: the median, in microseconds.
        p95: 95 of 100 were not longer, in microseconds.
        p99: 99 of 100 likewise.
        samples: how many were measured.
    """

    p50: float
    p95: float
    p99: float
    samples: int

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Summary:
        """The percentiles of at least one time.

        >>> Summary.of([1000, 3000, 2000])
        Summary(p50=2.0, p95=2.9, p99=2.98, samples=3)
        """
        p50, p95, p99 = np.percentile(np.asarray(nanoseconds) / 1000, (50, 95, 99)).round(2)
        return cls(float(p50), float(p95), float(p99), len(nanoseconds))


@dataclass(frozen=True, slots=True)
class Startup:
    """A fresh process that loads one model.

    Attributes:
        encoder: name and version of who encodes; empty for a model's own chat encoder.
        import_seconds: of ``import mmroute``.
        load_seconds: of `Normalizer.from_pretrained`, with the libraries it imports.
        ready_seconds: from the beginning of that, until the encoder is chosen and proved.
        rss_imported_bytes: resident memory after the import.
        rss_loaded_bytes: once the model is ready.
        rss_again_bytes: once it is loaded a second time beside the first, which needs no
            library anew: the difference is the model alone.
    """

    encoder: str
    import_seconds: float
    load_seconds: float
    ready_seconds: float
    rss_imported_bytes: int
    rss_loaded_bytes: int
    rss_again_bytes: int


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of the requests of one mix.

    Attributes:
        mix: its name.
        says: what is in a request.
        token_ids: in an expanded prompt; the median.
        images: in a request; the median.
        whole_us: a request, without block hashes.
        without_encoding_us: the same requests, each less its own encode stage.
        stages_us: each stage that the requests have.
        no_hashes: why there are no block hashes; None if there are.
        text_reuse: what the cache of texts did meanwhile; None without one.
        hash_reuse: the same for block hashes.
    """

    mix: str
    says: str
    token_ids: int
    images: int
    whole_us: Summary
    without_encoding_us: Summary
    stages_us: Mapping[Stage, Summary]
    no_hashes: str | None
    text_reuse: CacheStats | None
    hash_reuse: CacheStats | None


def measure_latency(timed: Child, reference: Child, mix: Mix, *, repeat: int) -> Latency:
    """Time a mix.

    Args:
        timed: a process with the caches that are measured.
        reference: the same model without fast paths; every timed answer is compared with its.
        mix: the requests.
        repeat: how many are timed.

    Raises:
        InexactError: a request has no answer.
        MmrouteError: an answer differs from the reference's.
    """
    timed.warm_up(mix)
    reference.warm_up(mix)
    before = timed.ask("counters")
    answers = []
    for _, answer, _ in in_turns(timed, reference, mix, repeat, watched=(True,)):
        if "refusal" in answer:
            reason, message = answer["refusal"]
            raise InexactError(Reason(reason), message)
        answers.append(answer)
    after = timed.ask("counters")
    times = {stage: [answer["stages"].get(stage.value, 0) for answer in answers] for stage in Stage}
    whole = [answer["wall"] for answer in answers]
    rest = [each - encoding for each, encoding in zip(whole, times[Stage.ENCODE], strict=True)]
    no_hashes = next((each["hashes"] for each in answers if "hash_wall" not in each), None)
    if no_hashes is None:
        times[Stage.HASH] = [answer["hash_wall"] for answer in answers]
    return Latency(
        mix=mix.name,
        says=mix.says,
        token_ids=int(np.median([answer["token_ids"] for answer in answers])),
        images=int(np.median([answer["items"] for answer in answers])),
        whole_us=Summary.of(whole),
        without_encoding_us=Summary.of(rest),
        stages_us={stage: Summary.of(found) for stage, found in times.items() if any(found)},
        no_hashes=no_hashes,
        text_reuse=_between(before["texts"], after["texts"]),
        hash_reuse=_between(before["hashes"], after["hashes"]),
    )


def _between(before: Sequence[int] | None, after: Sequence[int] | None) -> CacheStats | None:
    if before is None or after is None:
        return None
    then, now = CacheStats(*before), CacheStats(*after)
    return now._replace(
        hits=now.hits - then.hits, misses=now.misses - then.misses, reused=now.reused - then.reused
    )
