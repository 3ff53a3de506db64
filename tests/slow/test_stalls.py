"""Whatever a megabyte asks for, the other requests wait for at most 50 ms of processor time.

A new kind of request is one more line of `CASES`. Each is sent to a running server that watches its
own event loop.
"""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from chat_requests import CHAT, COMPLETION, DETOKENIZE, MESSAGES, RESPONSES, TOKENIZE
from media_files import chunk, png_url
from processor import at_present
from server_helpers import wait_until_healthy

from mmroute.lab.engines.process import free_port

BYTES: Final = 1_000_000
LONGEST: Final = 0.050  # seconds of a free processor
ATTEMPTS: Final = 10
WATCHED: Final = Path(__file__).parents[1] / "helpers" / "watched_server.py"
HI: Final = '"messages":[{"role":"user","content":"Hi"}]'
SENT: Final = {  # what a request of each route has beside the field that is wrong
    CHAT: HI,
    COMPLETION: '"prompt":"a"',
    MESSAGES: f'"model":"model","max_tokens":5,{HI}',
    RESPONSES: '"input":"a"',
    TOKENIZE: HI,
    DETOKENIZE: '"tokens":[1]',
}
LISTS: Final = {
    CHAT: ("messages", "tools", "documents", "bad_words", "stop", "cache_salt"),
    COMPLETION: ("prompt", "prompt_embeds", "stop_token_ids"),
    MESSAGES: ("messages", "system", "tools", "stop_sequences"),
    RESPONSES: ("input", "tools", "include"),
    TOKENIZE: ("messages", "prompt", "tools"),
    DETOKENIZE: ("tokens",),
}
OBJECTS: Final = {
    CHAT: ("logit_bias", "vllm_xargs", "media_io_kwargs", "chat_template_kwargs"),
    COMPLETION: ("logit_bias", "response_format"),
    RESPONSES: ("metadata", "text"),
}
TOOL: Final = '{"type":"function","function":{"name":"a"}}'
ENTRIES: Final = ("1", '"a"', "[]", "{}", '{"a":1}', "[[1]]", TOOL, "9" * 400)
DEEP: Final = "[" * 900 + "]" * 900


def repeated(before: str, entry: str, after: str) -> str:
    count = (BYTES - len(before) - len(after)) // (len(entry) + 1)
    return f"{before}{','.join([entry] * count)}{after}"


def of_fields() -> Iterator[tuple[str, str, str]]:
    """Many wrong entries in a list, many in an object, deep ones, and a number of many digits."""
    for path, sent in SENT.items():
        for field in (*LISTS[path], *OBJECTS.get(path, ())):
            before = "{" + sent.replace(f'"{field}":', '"other":') + f',"{field}":'
            for entry in (*ENTRIES, DEEP):
                yield path, f"{field} of {entry[:16]}", repeated(f"{before}[", entry, "]}")
            keys = ",".join(f'"{number}":[]' for number in range(BYTES // 12))
            yield path, f"{field} of keys", f"{before}{{{keys}}}}}"
            yield path, f"{field} of digits", f"{before}{'1' * BYTES}}}"
            yield path, f"{field} of brackets", f"{before}{'[' * BYTES}"
            yield path, f"{field} of letters", f'{before}"{"a" * BYTES}"}}'


def of_messages() -> Iterator[tuple[str, str, str]]:
    """Many of what is right."""
    turn = '{"role":"user","content":"a"},{"role":"assistant","content":"a"}'
    part = '{"type":"text","text":"a"}'
    call = '{"type":"function","id":"a","function":{"name":"a","arguments":"{}"}}'
    of_user = '[{"role":"user","content":['
    for model in ("model", "embedded"):
        sent = f'{{"model":"{model}","max_tokens":5,"messages":'
        for path in (CHAT, TOKENIZE, MESSAGES):
            yield path, "messages", repeated(f"{sent}[", turn, "]}")
            yield path, "parts", repeated(sent + of_user, part, "]}]}")
        yield DETOKENIZE, "IDs", repeated(f'{{"model":"{model}","tokens":[', "5", "]}")
        calls = f'{sent}[{{"role":"assistant","tool_calls":['
        yield CHAT, "tool calls", repeated(calls, call, "]}]}")
    yield RESPONSES, "messages", repeated('{"input":[', turn, "]}")
    yield (
        CHAT,
        "empty URLs",
        repeated(
            f'{{"messages":{of_user}',
            '{"type":"image_url","image_url":{"url":"data:;base64,"}}',
            "]}]}",
        ),
    )
    escapes = "\\u0061" * (BYTES // 6)
    yield CHAT, "escapes", f'{{"messages":[{{"role":"user","content":"{escapes}"}}]}}'
    yield COMPLETION, "IDs", repeated('{"prompt":[', "1", "]}")
    yield COMPLETION, "lists of IDs", repeated('{"prompt":[', "[1]", "]}")
    yield COMPLETION, "texts", repeated('{"prompt":[', f'"{"a" * 997}"', "]}")
    long = json.dumps({"prompt": "a " * 400_000, "return_token_strs": True})
    yield TOKENIZE, "strings of tokens", long
    hashed = json.dumps({"messages": [{"role": "user", "content": "a " * 30_000}]})
    yield f"{CHAT}?block_size=1&algorithm=sha256", "hashes", hashed


def png(*chunks: bytes, side: int = 8) -> bytes:
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"".join([b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), *chunks])


def of_pictures() -> Iterator[tuple[str, str, str]]:
    """Small files that are large inside, and files of many parts."""
    end = chunk(b"IEND")
    rows = chunk(b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
    note = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20), 9))
    pixels = zlib.compress(bytes(64 << 20), 9)
    marker = b"\xff\xe1\0\2"
    segments = b"\xff\xd8" + marker * 16_000 + b"\xff\xd9"
    files = {
        "inflating notes": [png(*[note] * 60, rows, end)] * 8,
        "one inflating note": [png(note, rows, end)] * 30,
        "no end": [png(chunk(b"IDAT", pixels), side=4000)],
        "chunks": [png(*[chunk(b"tEXt", b"a\0")] * 50_000, rows, end)],
        "pieces": [png(rows, *[chunk(b"IDAT")] * 60_000, end)],
        "segments": [segments] * 11,
        "blocks": [b"GIF89a\x08\0\x08\0\0\0\0,\0\0\0\0\x08\0\x08\0\0\x08" + b"\1\0" * 350_000],
        "markers": [b"\xff\xd8\xff\xe0\0\2" + b"\xff\1" * 100_000] * 3,
    }
    for name, contents in files.items():
        urls = [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in contents]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        yield CHAT, name, json.dumps({"messages": [{"role": "user", "content": parts}]})
        blocks = [
            {"type": "image", "source": {"type": "base64", "data": url.partition(",")[2]}}
            for url in urls
        ]
        message = {"role": "user", "content": blocks}
        yield MESSAGES, name, json.dumps({"model": "model", "max_tokens": 5, "messages": [message]})
    small = f'{{"type":"image_url","image_url":{{"url":"{png_url(2, 2)}"}}}}'
    yield CHAT, "pictures", repeated('{"messages":[{"role":"user","content":[', small, "]}]}")


CASES: Final = {
    "fields": of_fields,
    "messages": of_messages,
    "pictures": of_pictures,
}


class Watched:
    """A running server, and what it tells of its event loop."""

    def __init__(self, client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
        self.client = client
        self._process = process

    def longest(self) -> float:
        """Seconds of the process's own work since it was asked before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stalls(self, path: str, body: str) -> list[float]:
        """Attempts until one is short enough; others that work on the machine add to each."""
        found: list[float] = []
        for _ in range(ATTEMPTS):
            self.longest()
            headers = {"content-type": "application/json"}
            answer = self.client.post(path, content=body.encode(), headers=headers)
            assert answer.status_code in {200, 400, 413, 422}, (answer.status_code, answer.text)
            stall = self.longest()
            if stall <= LONGEST or stall <= at_present(LONGEST):
                return []
            found.append(round(stall, 3))
        return found


@pytest.fixture(scope="module")
def watched(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    port, log = free_port(), tmp_path_factory.mktemp("stalls") / "log"
    command = [sys.executable, str(WATCHED), str(port), str(small_model("small-qwen2.5-vl"))]
    with log.open("wb") as stderr:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        try:
            wait_until_healthy(client, server, log)
            for path, _, body in of_messages():  # what is loaded with the first of its kind
                client.post(path, content=body, headers={"content-type": "application/json"})
            yield Watched(client, server)
        finally:
            server.kill()
            server.communicate()
    assert "Traceback" not in log.read_text()


@pytest.mark.process
@pytest.mark.parametrize("kind", CASES)
def test_no_megabyte_stops_the_event_loop(watched: Watched, kind: str) -> None:
    stalls = {}
    for path, name, body in CASES[kind]():
        if found := watched.stalls(path, body):
            stalls[path, name] = found
    assert not stalls
