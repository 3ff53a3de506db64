"""Load `mmroute serve`, and vLLM's render server beside it.

    python benchmarks/serving.py MODEL_DIR [--vllm-python PATH] [--soak 200000]
    python benchmarks/serving.py MODEL_DIR --beside TREE [--rounds 300]
    python benchmarks/serving.py MODEL_DIR --replacements 20

Each request has 1,000 words that are its own, and one 1280x720 JPEG as a data URL of about 100 kB.
Client and server run on this machine and share its cores. Every hundredth answer is compared with
the one of a `Normalizer`. MODEL_DIR is a directory of any family with images.

With `--beside` the server of another source tree gets the same requests, in short turns over kept
connections. What is told then is the processor time of each server process for a request.

With `--replacements` a server replaces its model by the same one again and again. What is told then
is its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.builds import ratio_of
from benchmarks.http_load import Load, Plan, connect, run_load, send
from benchmarks.machine import machine
from benchmarks.photographs import photograph_url
from benchmarks.render_server import UnavailableError, render_server
from benchmarks.words import english
from mmroute import Normalizer

_TREE = Path(__file__).parents[1]
_Server: TypeAlias = "tuple[int, subprocess.Popen[bytes]]"  # its port, and its process
_CONNECTIONS = 8
_QUALITY = 22  # about 100 kB
_PICTURES = 64
_TEXTS = 4096
_RATE = 500
_IN_A_ROW = 24  # requests to one server before the other's turn
_HEAD = (
    b"POST /v1/chat/completions/render HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
_BEFORE = (
    b'{"mm_payload":"none","messages":[{"role":"user","content":[{"type":"image_url",'
    b'"image_url":{"url":"'
)
_BETWEEN = b'"}},{"type":"text","text":'
_AFTER = b"}]}]}"


def main() -> None:
    """Run all loads, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", metavar="MODEL_DIR", type=Path)
    parser.add_argument("--vllm-python", metavar="PATH", type=Path)
    parser.add_argument("--requests", metavar="N", type=int, default=10_000)
    parser.add_argument(
        "--soak", metavar="N", type=int, default=0, help="as many more, to see the memory"
    )
    parser.add_argument(
        "--beside", metavar="TREE", type=Path, help="a source tree whose server is compared"
    )
    parser.add_argument("--rounds", metavar="N", type=int, default=300, help="of a comparison")
    parser.add_argument(
        "--replacements", metavar="N", type=int, default=0, help="to see the memory"
    )
    arguments = parser.parse_args()
    model = str(arguments.model.resolve())
    if arguments.beside is not None:
        _print_beside(model, arguments.beside.resolve(), arguments.rounds)
        return
    if arguments.replacements:
        _print_replacements(model, arguments.replacements)
        return
    normalizer = Normalizer.from_pretrained(model)

    def check(number: int, answer: bytes) -> None:
        own = normalizer.normalize(messages=json.loads(_body(number))["messages"])
        found = json.loads(answer)
        assert found["token_ids"] == own.token_ids.tolist(), number
        assert found["features"]["mm_hashes"]["image"] == [str(own.identities[0])], number

    rows = []
    warm = Plan(_request, 500, _CONNECTIONS)  # buffers and caches
    fast = Plan(_request, arguments.requests, _CONNECTIONS, check=check, first=1_000_000)
    steady = Plan(_request, arguments.requests, 32, _RATE, check, first=2_000_000)
    shared = Plan(_request, arguments.requests, _CONNECTIONS, check=check, first=3_000_000)
    with _mmroute(model) as (port, process):
        run_load([port], warm)
        before = _cpu_seconds(process.pid)
        rows.append(_row("mmroute, as fast as it answers", run_load([port], fast)))
        spent = (_cpu_seconds(process.pid) - before) / arguments.requests
        rows.append(_row(f"mmroute, {_RATE} requests/s", run_load([port], steady)))
        with _mmroute(model) as (other, _):
            run_load([other], warm)
            rows.append(_row("mmroute, two processes", run_load([port, other], shared)))
        memory = _soak(port, process.pid, arguments.soak) if arguments.soak else []
    try:
        with render_server(arguments.vllm_python, model) as server:
            few = Plan(_request, max(100, arguments.requests // 50), _CONNECTIONS)
            rows.append(_row("vLLM render, as fast as it answers", run_load([server.port], few)))
    except UnavailableError as error:
        rows.append(("vLLM render", str(error), "", "", ""))
    print(machine())
    for row in (("", "requests/s", "median", "p99", "answered / refused"), *rows):
        print("{:40}{:>12}{:>12}{:>12}{:>22}".format(*row))
    print(*memory, sep="\n")
    print(f"mmroute's processor time: {spent * 1e3:.2f} ms a request")


def _print_beside(model: str, tree: Path, rounds: int) -> None:
    with _mmroute(model, tree) as first, _mmroute(model) as second:
        servers = (first, second)
        for port, _ in servers:
            run_load([port], Plan(_request, 300, _CONNECTIONS))
        pairs = asyncio.run(_in_turns(servers, rounds))
    ratio = ratio_of(pairs)
    print(machine())
    for name, least, median in zip((tree, "this one"), ratio.least, ratio.medians, strict=True):
        print(f"{name}: least {least:.0f} us a request, median {median:.0f} us")
    print(
        f"ratio of pairs {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), of the least "
        f"{ratio.least[1] / ratio.least[0]:.3f}, {rounds} rounds of {_IN_A_ROW}"
    )


def _print_replacements(model: str, replacements: int) -> None:
    print(machine())
    headers = {"Authorization": "Bearer k", "Content-Type": "application/json"}
    with _mmroute(f"a={model}", _TREE, "--admin-key", "k") as (port, process):

        def admin(method: str, body: bytes | None = None) -> dict[str, object]:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                connection.request(method, "/admin/models/a", body, headers)
                answer = connection.getresponse()
                assert answer.status in (http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED)
                found: dict[str, object] = json.load(answer)
                return found

        for number in range(replacements + 1):
            run_load([port], Plan(_request, 500, _CONNECTIONS))
            print(f"after {number} replacements: {_resident(process.pid) / 2**20:.0f} MiB")
            admin("PUT", json.dumps({"model": model}).encode())
            while "replacement" in admin("GET"):
                time.sleep(0.1)


async def _in_turns(servers: Sequence[_Server], rounds: int) -> list[tuple[int, int]]:
    """Nanoseconds of each server for a request, round by round."""
    lines = [await connect([port], _CONNECTIONS) for port, _ in servers]
    pairs = []
    for number in range(rounds):
        plan = Plan(_request, _IN_A_ROW, _CONNECTIONS, first=1_000_000 + number * _IN_A_ROW)
        spent = [0, 0]
        for at in (0, 1) if number % 2 else (1, 0):
            pid = servers[at][1].pid
            before = _cpu_nanoseconds(pid)
            load = await send(lines[at], plan)
            assert not load.refused, load.refused
            spent[at] = (_cpu_nanoseconds(pid) - before) // _IN_A_ROW
        pairs.append((spent[0], spent[1]))
    return pairs


def _cpu_nanoseconds(pid: int) -> int:
    """Of all threads there are, by the scheduler's clock: exact while they sleep."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)


def _soak(port: int, pid: int, requests: int) -> list[str]:
    lines, tenth = [], requests // 10
    for part in range(10):
        first = part * tenth
        load = run_load([port], Plan(_request, tenth, _CONNECTIONS, first=4_000_000 + first))
        assert not load.refused, load.refused
        lines.append(
            f"after {first + tenth:,} more requests: {_resident(pid) / 2**20:.0f} MiB, "
            f"{load.per_second:,.0f} requests/s"
        )
    return lines


def _cpu_seconds(pid: int) -> float:
    """Of the process and all its threads, in the system as well."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _row(name: str, load: Load) -> Sequence[str]:
    return (
        name,
        f"{load.per_second:,.0f}",
        f"{load.median * 1e3:.1f} ms",
        f"{load.percentile(99) * 1e3:.1f} ms",
        f"{load.answered:,} / {load.refused:,}",
    )


@cache
def _text(number: int) -> bytes:
    return json.dumps(english(random.Random(number), 1000)).encode()


@cache
def _picture(number: int) -> bytes:
    return photograph_url(number, quality=_QUALITY).encode()


def _pieces(number: int) -> list[bytes]:
    url, text = _picture(number % _PICTURES), _text(number % _TEXTS)
    # Texts come again after a while, each time behind another number: no two requests are equal.
    return [_BEFORE, url, _BETWEEN, b'"%d %s' % (number, text[1:]), _AFTER]


def _body(number: int) -> bytes:
    return b"".join(_pieces(number))


def _request(number: int) -> list[bytes]:
    pieces = _pieces(number)
    return [_HEAD % sum(map(len, pieces)), *pieces]


@contextlib.contextmanager
def _mmroute(model: str, tree: Path = _TREE, *options: str) -> Iterator[_Server]:
    # -P: the working directory must not come before the tree.
    command = [sys.executable, "-P", "-m", "mmroute", "serve", model, "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log, env=environment)
        try:
            yield _port(process, log), process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _port(process: subprocess.Popen[bytes], log: IO[bytes]) -> int:
    """The port that the server's log names, once it is healthy."""
    for _ in range(600):
        time.sleep(0.1)
        log.seek(0)
        found = re.search(rb"http://127\.0\.0\.1:([0-9]+)", log.read())
        if found is not None:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{int(found[1])}/health"),
            ):
                return int(found[1])
        assert process.poll() is None, "it ended"
    raise TimeoutError("the server was not healthy within a minute")


if __name__ == "__main__":
    main()
