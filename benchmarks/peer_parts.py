"""The same requests answered by others: each answer is compared before it counts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.page import Aim, Part, Subject, micro, table
from benchmarks.photographs import SIZE, photograph_url
from benchmarks.render_server import (
    Server,
    UnavailableError,
    body,
    quiet_environment,
    render_server,
)
from benchmarks.request_parts import rendered
from mmroute.batch import Request
from mmroute.bench.latency import digest
from mmroute.bench.mixes import chat_request
from mmroute.bench.summary import Summary, summarize

__all__ = ["http_part", "processor_part"]

_PEERS = Path(__file__).parent / "peers"
_RENDER = "/v1/chat/completions/render"
_TOKENIZE = "/tokenize"
_IMAGES = 4
_LONGEST = 900  # seconds
_ROUTES: tuple[tuple[str, str, dict[str, Any], float], ...] = (
    ("`/tokenize`", _TOKENIZE, {}, 25),
    ("`/render`, mm_payload none", _RENDER, {"mm_payload": "none"}, 25),
    ("`/render`, with tensors", _RENDER, {}, 75),
)


def with_photographs(seed: int, first: int) -> Request:
    """1,000 new words and four photographs as data URLs, counted from `first`."""
    request = chat_request(seed, words=1000, images=[SIZE] * _IMAGES)
    parts = list(request["messages"][0]["content"])
    numbers = iter(range(first, first + _IMAGES))
    content = [
        {"type": "image_url", "image_url": {"url": photograph_url(next(numbers))}}
        if part["type"] == "image"
        else part
        for part in parts
    ]
    return {"messages": [{"role": "user", "content": content}]}


def http_part(subject: Subject, python: Path | None) -> Part:
    """vLLM's render server on loopback."""
    title = "vLLM over HTTP"
    ours = {
        "images never seen": _ours(subject, partial(_fresh_images, 9_000)),
        "no images": _ours(subject, lambda seed: chat_request(seed, words=1000)),
    }
    subject.say("starting vLLM's render server")
    try:
        with render_server(python, str(subject.directory)) as server:
            rows, aims, version = _asked(subject, server, ours)
    except UnavailableError as error:
        aims = [Aim(f"vLLM {name} over HTTP, same request", "-", f"{target:.0f}x", None)
                for name, _, _, target in _ROUTES]  # fmt: skip
        return Part(title, [f"Not run: {error}.", ""], aims, not_run=[f"vLLM over HTTP: {error}"])
    lines = [
        (
            f"`vllm launch render` of vLLM {version} on the same machine, one connection kept "
            "alive, one request after the other. 1,000 words, new each time, and four JPEGs of "
            "1280x720 and about 300 kB as data URLs. mmroute gets the same messages, in process: "
            "that it needs no hop is the point. The answer's JSON is not parsed in the server's "
            "time. *images never seen*: each file is new, vLLM's processor cache has nothing. "
            "*images seen before*: the same four in every request, which that cache holds; "
            "mmroute has none for images."
        ),
        "",
        *table(("", "images", "vLLM, p50", "p95", "mmroute, p50", "ratio"), rows),
    ]
    return Part(title, lines, aims)


def _fresh_images(first: int, seed: int) -> Request:
    return with_photographs(seed, first + _IMAGES * seed)


def _same_images(seed: int) -> Request:
    return with_photographs(seed, 0)


def _ours(subject: Subject, make: Callable[[int], Request]) -> Summary:
    seeds = range(subject.repeat // 2 + 5)
    expected = [digest(subject.reference.normalize(**make(seed))) for seed in seeds]
    times = []
    for seed in seeds:
        request = make(seed)
        started = time.perf_counter_ns()
        routing = subject.normalizer.normalize(**request)
        times.append(time.perf_counter_ns() - started)
        if digest(routing) != expected[seed]:
            raise SystemExit("mmroute's answer to a request with files is wrong")
    return summarize(times[5:])


def _asked(
    subject: Subject, server: Server, ours: dict[str, Summary]
) -> tuple[list[Sequence[str]], list[Aim], str]:
    rows: list[Sequence[str]] = []
    aims = []
    version = str(json.loads(server.get("/version"))["version"])
    repeat = max(5, min(20, subject.repeat // 20))
    for number, (name, path, fields, target) in enumerate(_ROUTES):
        first = 1_000_000 * (number + 1)
        for images, make, mine in (
            ("never seen", partial(_fresh_images, first), "images never seen"),
            ("seen before", _same_images, "images never seen"),
            ("none", lambda seed: chat_request(seed, words=1000), "no images"),
        ):
            subject.say(f"vLLM {path} {fields}, images {images}")
            found = _time_route(subject, server, path, fields, make, first, repeat)
            ratio = found.p50 / ours[mine].p50
            rows.append((name, images, micro(found.p50), micro(found.p95),
                         micro(ours[mine].p50), f"{ratio:.0f}x"))  # fmt: skip
            if images == "never seen":
                what = f"vLLM {name} over HTTP, same request with four JPEGs"
                aims.append(Aim(what, f"{ratio:.0f}x slower than mmroute", f"{target:.0f}x",
                                ratio >= target))  # fmt: skip
    return rows, aims, version


def _time_route(  # noqa: PLR0913, PLR0917 - one call for all routes
    subject: Subject,
    server: Server,
    path: str,
    fields: dict[str, Any],
    make: Callable[[int], Request],
    first: int,
    repeat: int,
) -> Summary:
    field = "tokens" if path == _TOKENIZE else "token_ids"
    times = []
    for seed in range(first, first + repeat + 2):
        request = make(seed)
        content = body(request["messages"], **fields)
        started = time.perf_counter_ns()
        answer = server.post(path, content)
        times.append(time.perf_counter_ns() - started)
        if json.loads(answer)[field] != subject.reference.normalize(**request).token_ids.tolist():
            raise SystemExit(f"vLLM's {path} gives other IDs than mmroute; nothing is reported")
    return summarize(times[2:])


def processor_part(subject: Subject, python: Path | None) -> Part:
    """The processors themselves, in their own processes."""
    repeat = max(5, min(20, subject.repeat // 20))
    requests = [_fresh_images(5_000_000, seed) for seed in range(6_000, 6_000 + repeat + 1)]
    expected = [subject.reference.normalize(**request).token_ids.tolist() for request in requests]
    ours = _ours(subject, partial(_fresh_images, 7_000_000))
    job = json.dumps({
        "model": str(subject.directory),
        "requests": [_job(subject, request) for request in requests],
    })  # fmt: skip
    rows = [
        ("mmroute, messages with data URLs to token IDs", micro(ours.p50), micro(ours.p95), "1x")
    ]
    versions, not_run = dict[str, str](), []
    here = Path(sys.executable) if _has("transformers", "torchvision") else None
    for name, script, interpreter in (
        ("transformers' processor", "hf_processor.py", here or python),
        ("vLLM's `processor.apply`", "vllm_processor.py", python),
    ):
        subject.say(name)
        try:
            found = _peer(script, interpreter, job)
        except UnavailableError as error:
            not_run.append(f"{name}: {error}")
            rows.append((name, "not run", "", ""))
            continue
        if found["token_ids"] != expected:
            raise SystemExit(f"{name} gives other IDs than mmroute; nothing is reported")
        versions |= found["versions"]
        for kind, times in found["times_ns"].items():
            spent = summarize(times)
            label = name if kind == "call" else f"{name}, {kind} cache"
            rows.append((label, micro(spent.p50), micro(spent.p95), f"{spent.p50 / ours.p50:.0f}x"))
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        (
            "1,000 new words and four new JPEGs of 1280x720. The processors are given what "
            "mmroute works out for itself: transformers' the rendered text and decoded images, "
            "vLLM's `apply` the token IDs and decoded images; only their call is "
            f"timed{' (' + said + ')' if said else ''}. A cold cache has not seen the images, a "
            "warm one has just processed them."
        ),
        "",
        *table(("", "p50", "p95", "ratio"), rows),
    ]
    return Part("The processors themselves", lines, not_run=not_run)


def _job(subject: Subject, request: Request) -> dict[str, Any]:
    content: Sequence[dict[str, Any]] = request["messages"][0]["content"]
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    text = rendered(subject.reference, request)
    ids = subject.reference.model.tokenizer.encode(text, add_special_tokens=False)
    images = [url.partition(",")[2] for url in urls]
    return {"text": text, "token_ids": ids.tolist(), "images": images}


def _has(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def _peer(script: str, interpreter: Path | None, job: str) -> dict[str, Any]:
    if interpreter is None:
        raise UnavailableError("it is not installed here, and --vllm-python was not given")
    done = subprocess.run(  # noqa: S603 - the interpreter that was named, and a script of ours
        [str(interpreter), str(_PEERS / script)],
        input=job, capture_output=True, text=True, timeout=_LONGEST, check=False,
        env=quiet_environment(),
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise UnavailableError(f"it ended with: {said[:200]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
