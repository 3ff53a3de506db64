"""``mmroute bench``: measure a model's requests on this machine."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, encoder_argument, positive
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import EXIT_FAILURE, failed, say
from mmroute.errors import InexactError
from mmroute.hashing import Algorithm
from mmroute.lab.bench.children import Child, this_build
from mmroute.lab.bench.latency import Hashing, Latency, Startup, measure_latency
from mmroute.lab.bench.machine import machine
from mmroute.lab.bench.mixes import MIXES, Inexact, Mix, read_mix
from mmroute.lab.bench.report import Bench, MeasuredMix, as_json, as_lines
from mmroute.lab.bench.throughput import cores, measure_throughput
from mmroute.normalizer import Normalizer
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import REFERENCE_ONLY

_THROUGHPUT_SECONDS: Final = 4.0  # that the requests of one mix may take, with their reference
_EPILOG = """\
Without --input the requests are mmroute's own, of ordinary words, each with another text:
{mixes}
A model that does not take the images of a mix, or not in its context, gets the reason instead.

Stages: render (the chat template), encode, count, place, expand, and other: checks, messages
taken apart, image headers and identities. Block hashes (hash) come on top of the whole request.
Every timed answer is compared with `tokenizers` alone, without any cache, or nothing is reported;
the report says which caches took part. Requests of a file that have no answer are not timed.

exit status: 0 measured; 1 failure, a wrong answer, or no request that has one; 2 bad usage
"""


def add_bench(commands: Commands) -> None:
    """Add the command."""
    mixes = "\n".join(f"  {mix.name:<14}{mix.says}" for mix in MIXES.values())
    bench = add_command(
        commands,
        "bench",
        "what requests cost here: latency by stage, throughput of all cores, memory",
        _bench,
        epilog=_EPILOG.format(mixes=mixes),
    )
    model_arguments(bench)
    encoder_argument(bench)
    which = bench.add_mutually_exclusive_group()
    which.add_argument(
        "--input", metavar="FILE", type=Path, help="your own requests, as for `mmroute tokens`"
    )
    which.add_argument(
        "--mix",
        metavar="NAME",
        choices=[*MIXES],
        help="the one mix to measure (default: all mixes that the model answers)",
    )
    bench.add_argument(
        "--repeat",
        metavar="N",
        type=positive,
        default=100,
        help="the number of requests of each mix to time; at least all requests of a file "
        "(default: %(default)s)",
    )
    bench.add_argument(
        "--algorithm",
        choices=[algorithm.value for algorithm in Algorithm],
        default=Algorithm.SHA256.value,
        help="the engine's --prefix-caching-hash-algo (default: %(default)s)",
    )
    bench.add_argument(
        "--block-size",
        metavar="N",
        type=positive,
        default=16,
        help="the engine's block size in tokens (default: %(default)s)",
    )
    bench.add_argument(
        "--processes",
        metavar="N",
        type=positive,
        default=len(cores()),
        help="the number of processes that answer at the same time (default: one on each core)",
    )


def _bench(arguments: argparse.Namespace) -> int:
    if arguments.input is not None and not arguments.input.is_file():
        return failed(arguments, f"--input: there is no file {arguments.input}")
    bench = _measured(arguments)
    if arguments.json:
        print(json.dumps(as_json(bench), ensure_ascii=False))
    else:
        print("\n".join(as_lines(bench)))
    return 0 if any(mix.latency for mix in bench.mixes) else EXIT_FAILURE


def _setup(arguments: argparse.Namespace) -> dict[str, Any]:
    """The setup that all measured processes share."""
    loading = {
        name: getattr(arguments, name) for name in ("model", "backend", "model_id", "revision")
    }
    hashing = Hashing(arguments.algorithm, arguments.block_size)
    setup: dict[str, Any] = {
        "loading": {name: value for name, value in loading.items() if value is not None},
        "hashing": asdict(hashing),
    }
    if arguments.engine_args or arguments.engine_config:
        setup["engine"] = {"arguments": arguments.engine_args, "config": arguments.engine_config}
    return setup


def _measured(arguments: argparse.Namespace) -> Bench:
    where = machine()
    say("loading the model, and its reference")
    model = load_normalizer(arguments, fast_paths=REFERENCE_ONLY)
    mixes = list(_mixes(arguments, model))
    setup = _setup(arguments)
    timed = this_build({"encoder": arguments.encoder}, "the model with its fast paths")
    reference = this_build(asdict(REFERENCE_ONLY), "the reference")
    latencies: dict[str, Latency] = {}
    inexact: dict[str, tuple[Inexact, ...]] = {}
    requests: dict[str, int] = {}
    with Child(timed, setup) as child:
        loaded = child.receive()
        startup = Startup(**loaded, rss_again_bytes=child.ask("load_again"))
        encoder = child.ask("counters")
        with Child(reference, setup) as other:
            other.receive()
            for mix in mixes:
                inexact[mix.name] = mix.inexact
                if mix.distinct == 0:
                    continue
                repeat = max(arguments.repeat, mix.distinct or 0)
                say(f"{mix.name}: latency of {repeat} requests")
                started = time.perf_counter()
                try:
                    latencies[mix.name] = measure_latency(child, other, mix, repeat=repeat)
                except InexactError as error:  # the model does not take such requests
                    inexact[mix.name] += (Inexact("a request", error.reason, str(error)),)
                # The reference answers all of them as well, which takes most of the time.
                each = (time.perf_counter() - started) / repeat
                fit = int(_THROUGHPUT_SECONDS / each)
                requests[mix.name] = min(max(arguments.repeat, fit), 10 * arguments.repeat)
    throughputs = measure_throughput(
        timed,
        reference,
        [mix for mix in mixes if mix.name in latencies],
        setup,
        processes=arguments.processes,
        requests=requests,
        progress=say,
    )
    by_mix = {throughput.mix: throughput for throughput in throughputs}
    return Bench(
        model=model.model.name,
        family=model.model.family.family,
        encoder=f"{encoder['encoder']}: {encoder['why']}" if encoder["encoder"] else "",
        machine=where,
        hashing=Hashing(**setup["hashing"]),
        mixes=[
            MeasuredMix(name, latencies.get(name), by_mix.get(name), inexact[name])
            for name in inexact
        ],
        startup=startup,
    )


def _mixes(arguments: argparse.Namespace, reference: Normalizer) -> Iterator[Mix]:
    if arguments.input is not None:
        yield read_mix(arguments.input, reference)
    elif arguments.mix is not None:
        yield MIXES[arguments.mix]
    else:
        takes_images = Modality.IMAGE in reference.model.media
        yield from (m for m in MIXES.values() if takes_images or "images" not in m.request(0))
