"""Measures the latency of a mix of requests, in total and by stage, and the time of loading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.answering.stages import Stage
from mmroute.errors import InexactError, Reason
from mmroute.lab.bench.children import Child, in_turns
from mmroute.lab.bench.mixes import Mix
from mmroute.reuse.fast_paths import CacheStats


@dataclass(frozen=True, slots=True)
class Hashing:
    """The settings of block hashes.

    Attributes:
        algorithm: the engine's ``--prefix-caching-hash-algo``.
        block_size: the number of tokens in a block.
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
        p95: the 95th percentile, in microseconds.
        p99: the 99th percentile, in microseconds.
        samples: the number of measurements.
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
        encoder: the name and version of the encoder; empty for a model's own chat encoder.
        import_seconds: the seconds of ``import mmroute``.
        load_seconds: the seconds of `Normalizer.from_pretrained`, with the libraries it imports.
        ready_seconds: the seconds from the start of loading until the encoder is chosen.
        rss_imported_bytes: the resident memory after the import.
        rss_loaded_bytes: the resident memory when the model is ready.
        rss_again_bytes: the resident memory when the model is loaded a second time beside the
            first. The libraries are already there, so the difference is that of the model alone.
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
        mix: the name of the mix.
        says: a description of a request.
        token_ids: the median number of token IDs in an expanded prompt.
        images: the median number of images in a request.
        whole_us: the time of a request without block hashes.
        without_encoding_us: the time of the same requests less that of their encode stage.
        stages_us: the time of each stage.
        no_hashes: the reason why there are no block hashes; None if there are.
        text_reuse: the counters of the cache of texts for these requests; None without a cache.
        hash_reuse: the counters of the cache of block hashes, likewise.
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
    """Time a mix."""
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
    walls = [answer["wall"] for answer in answers]
    rest = [each - encoding for each, encoding in zip(walls, times[Stage.ENCODE], strict=True)]
    no_hashes = next((each["hashes"] for each in answers if "hash_wall" not in each), None)
    if no_hashes is None:
        times[Stage.HASH] = [answer["hash_wall"] for answer in answers]
    return Latency(
        mix=mix.name,
        says=mix.says,
        token_ids=int(np.median([answer["token_ids"] for answer in answers])),
        images=int(np.median([answer["items"] for answer in answers])),
        whole_us=Summary.of(walls),
        without_encoding_us=Summary.of(rest),
        stages_us={stage: Summary.of(each) for stage, each in times.items() if any(each)},
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
