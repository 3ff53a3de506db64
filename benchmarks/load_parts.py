"""Throughput, loading, and what the same request costs on other models."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.page import Aim, Part, Subject, micro, table
from benchmarks.request_parts import XXHASH, measured, stage_rows
from benchmarks.where import import_shares
from mmroute import FastPaths, Normalizer
from mmroute.bench.latency import Latency, measure_latency
from mmroute.bench.mixes import MIXES, Mix, chat_request
from mmroute.bench.startup import Startup, measure_startup
from mmroute.bench.throughput import cores, measure_throughput
from mmroute.fast_paths import REFERENCE_ONLY
from mmroute.model.files import EMBEDDED_MODEL

__all__ = ["others_part", "startup_part", "throughput_part"]

_MEBIBYTE = 1 << 20
_TARGET = 10_000
# What no loading can do without, in a process that does nothing else.
_PARSE = """\
import sys, time
from tokenizers import Tokenizer
text = open(sys.argv[1], encoding="utf-8").read()
started = time.perf_counter()
Tokenizer.from_str(text)
print(time.perf_counter() - started)
"""


def throughput_part(subject: Subject) -> Part:
    """All cores, a process on each."""
    subject.say("throughput")
    processes = len(cores())
    mixes = [MIXES["chat"], Mix("chat, words never seen", "", partial(
        chat_request, words=1000, images=[(1280, 720)], known=False))]  # fmt: skip
    found = measure_throughput(
        subject.normalizer, subject.reference, mixes, processes=processes,
        requests=10 * subject.repeat,
    )  # fmt: skip
    rows = [(f"{each.mix}: 1,000 words, one 1280x720 image", str(each.processes),
             f"{each.requests:,}", f"{each.seconds:.2f} s", f"{each.per_second:,.0f}")
            for each in found]  # fmt: skip
    best = found[0].per_second
    aim = Aim(f"throughput of {processes} cores, 1,000 words and one image", f"{best:,.0f}/s",
              f"{_TARGET:,} requests/s", best >= _TARGET)  # fmt: skip
    lines = [
        (
            "One process on each core, started together; all texts and image names are different, "
            "and no cache of mmroute takes part. Each answer is also digested for the comparison, "
            "which is in the time."
        ),
        "",
        *table(("requests", "processes", "answered", "time", "requests/s"), rows),
    ]
    return Part("Throughput", lines, [aim])


def startup_part(subject: Subject, *, rounds: int) -> Part:
    """Fresh processes that load the model."""
    rows, by_encoder = [], dict[str, list[Startup]]()
    for encoder in ("auto", "tokenizers"):
        subject.say(f"fresh processes, encoder={encoder}")
        found = [measure_startup(model=str(subject.directory), encoder=encoder)
                 for _ in range(rounds)]  # fmt: skip
        by_encoder[encoder] = found
        rows.append((
            encoder, found[0].encoder, _seconds([s.load_seconds for s in found]),
            _seconds([s.ready_seconds for s in found]),
            _mebibytes([s.rss_loaded_bytes - s.rss_imported_bytes for s in found]),
            _mebibytes([s.rss_again_bytes - s.rss_loaded_bytes for s in found]),
        ))  # fmt: skip
    everything = [s for found in by_encoder.values() for s in found]
    imported = statistics.median(s.import_seconds for s in everything)
    loaded = statistics.median(s.load_seconds for s in by_encoder["auto"])
    ready = statistics.median(s.ready_seconds for s in by_encoder["auto"])
    floor = statistics.median(_parse_seconds(subject.directory) for _ in range(rounds))
    base = _mebibytes([s.rss_imported_bytes for s in everything])
    aims = [
        Aim("`import mmroute`", f"{1000 * imported:.0f} ms", "100 ms", imported <= 0.1),
        Aim("`from_pretrained`", f"{loaded:.2f} s, of which {floor:.2f} s is the floor: "
            "`tokenizers` parsing tokenizer.json", "1 s", loaded <= 1),
    ]  # fmt: skip
    lines = [
        (f"Medians of {rounds} fresh processes each (files in the page cache). The first column of "
        f"memory is the growth of resident memory from after the import ({base}) until the "
        "encoder is ready, libraries included; the second is the growth when the same model is "
        "loaded once more beside the first. `ready` is when `normalizer.stats()` returns, which "
        "waits until fastokens is built and proved; until then the reference encodes short texts, "
        f"and the first long one waits. `tokenizers` parsing tokenizer.json alone takes "
        f"{floor:.2f} s of every loading; fastokens was ready after {ready:.2f} s."),
        "",
        *table(("encoder", "chosen", "from_pretrained", "ready", "memory, with libraries",
                "memory, once more"), rows),
        "Where the import goes (with the interpreter's own account of it, which slows it):",
        "",
        *import_shares(),
    ]  # fmt: skip
    return Part("Loading", lines, aims)


def _seconds(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} s"


def _mebibytes(values: list[int]) -> str:
    return f"{statistics.median(values) / _MEBIBYTE:.0f} MiB"


def _parse_seconds(directory: Path) -> float:
    command = [sys.executable, "-c", _PARSE, str(directory / "tokenizer.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return float(json.loads(done.stdout))


_OTHERS = {
    "phi-3.5-vision-instruct": "decodes the encoded prompt and encodes every chunk between its "
    "images anew, as the engine does (in *place*), because the second encoding differs",
    "llava-1.5-7b-hf": "its BPE has no pre-tokenizer, so pieces of text are longer than words and "
    "are not remembered",
    EMBEDDED_MODEL: "mistral-common's own chat encoder runs (in *render*): its checks in Python, "
    "and tiktoken as the engine of its tekken tokenizer; that is also why it has no encode stage",
}


def others_part(subject: Subject) -> Part:
    """The same request elsewhere; model directories beside this one, where they are."""
    mix = MIXES["pictures"]
    found: list[tuple[str, Latency]] = [(subject.name, measured(subject, mix))]
    reasons, not_run = [], []
    for name, why in _OTHERS.items():
        subject.say(name)
        directory = subject.directory.parent / name
        if name != EMBEDDED_MODEL and not directory.is_dir():
            not_run.append(f"{name}: there is no such directory beside the model's")
            continue
        model = name if name == EMBEDDED_MODEL else str(directory)
        normalizer = Normalizer.from_pretrained(model, fast_paths=FastPaths())
        stats = normalizer.stats().encoder
        reference = Normalizer.from_pretrained(model, fast_paths=REFERENCE_ONLY)
        other = Subject(directory, normalizer, reference, None, subject.repeat // 2, subject.say)
        latency = measure_latency(other.normalizer, other.reference, mix,
                                  repeat=other.repeat, hashing=XXHASH)  # fmt: skip
        if isinstance(latency, Latency):
            found.append((name, latency))
            encoder = stats.engine if stats else "mistral-common"
            reasons.append(f"- {name} ({encoder}; {latency.token_ids} token IDs): {why}.")
        else:
            not_run.append(f"{name}: {latency[0].message}")
    lines = ["1,000 words and four 1280x720 images, new each time.", "", *stage_rows(found),
             "Why they cost more:", "", *reasons, ""]  # fmt: skip
    slowest = [f"{name} {micro(latency.whole.p50)}" for name, latency in found]
    subject.say("; ".join(slowest))
    return Part("Other models", lines, not_run=not_run)
