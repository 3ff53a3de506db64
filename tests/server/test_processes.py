"""Several processes behind one port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from chat_requests import CHAT, HI, TOKENIZE
from server_helpers import children, log_lines, running, settled
from waiting import until

from mmroute import Normalizer
from mmroute.server.front.merged_metrics import SharedPages, shared_directory
from mmroute.server.supervisor import heard

KEY: Final = {"authorization": "Bearer k"}
COUNT: Final = 2


class Fleet:
    """A running server, and clients of it that have each a connection."""

    def __init__(self, clients: list[httpx.Client]) -> None:
        self.clients = clients

    def pages(self) -> str:
        return self.fresh("GET", "/metrics").text

    def fresh(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Over a connection of its own."""
        return httpx.request(method, self.clients[0].base_url.join(path), timeout=30, **more)

    def wait_for(self, line: str) -> None:
        until(lambda: line in self.pages(), self.pages)


@pytest.fixture(scope="module")
def fleet(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    log = tmp_path_factory.mktemp("fleet") / "log"
    options = ("--processes", str(COUNT), "--admin-key", "k", "--drain-seconds", "0")
    directory = str(small_model("small-qwen2.5-vl"))
    with ExitStack() as stack:
        server, client = stack.enter_context(running(f"first={directory}", *options, log=log))
        more = [httpx.Client(base_url=client.base_url, timeout=30) for _ in range(3)]
        yield Fleet([client, *map(stack.enter_context, more)])
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, log.read_text()
    assert "failed" not in {line["event"] for line in log_lines(log.read_text())}


def has_status(client: httpx.Client, model: str, status: str) -> bool:
    models: dict[str, str] = client.get(f"/readyz?model={model}").json().get("models", {})
    return models.get(model) == status


def ids_of(answer: httpx.Response) -> Any:
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()["token_ids"]


@pytest.mark.process
def test_all_answer_alike_and_count_together(
    fleet: Fleet, small_model: Callable[[str], Path]
) -> None:
    own = Normalizer.from_pretrained(small_model("small-qwen2.5-vl")).normalize(messages=HI)
    long = {"prompt": "a b " * 20_000}
    for client in fleet.clients:
        assert ids_of(client.post(CHAT, json={"messages": HI})) == own.token_ids.tolist()
        assert client.post(TOKENIZE, json=long).status_code == httpx.codes.OK  # in a thread
    counted = 'mmroute_routings_total{model="first",outcome="exact",reason=""} 8.0'
    fleet.wait_for(counted)
    fleet.wait_for(f"mmroute_processes {float(COUNT)}")


@pytest.mark.process
def test_a_change_of_models_reaches_all(fleet: Fleet, small_model: Callable[[str], Path]) -> None:
    """And none of those that answer loads it: others that have it take their places."""
    (parent,) = children(os.getpid())
    before = set(children(parent))
    directory = str(small_model("small-llava-1.5"))
    body = {"model": directory, "names": ["second"]}
    assert fleet.clients[0].post("/admin/models", json=body, headers=KEY).status_code in (200, 202)
    own = Normalizer.from_pretrained(directory).normalize(messages=HI).token_ids.tolist()
    for client in fleet.clients:
        until(partial(has_status, client, "second", "ready"))
        assert ids_of(client.post(CHAT, json={"messages": HI, "model": "second"})) == own
    fleet.wait_for('mmroute_routings_total{model="second",outcome="exact",reason=""} 4.0')
    fleet.wait_for(f"mmroute_processes {float(COUNT)}")
    assert before.isdisjoint(children(parent))


@pytest.mark.process
def test_the_only_one_that_answers_loads_no_model_that_comes_later(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    source, log = f"first={small_model('small-qwen2.5-vl')}", tmp_path / "log"
    with running(source, "--admin-key", "k", log=log) as (server, client):
        (before,) = settled(server, 1)
        body = {"model": str(small_model("small-llava-1.5")), "names": ["second"]}
        client.post("/admin/models", json=body, headers=KEY).raise_for_status()
        # Its connection is closed with an answer.
        until(lambda: client.get("/ping") and before not in children(server.pid))
        ids_of(client.post(CHAT, json={"messages": HI, "model": "second"}))


@pytest.mark.process
def test_a_model_that_cannot_be_loaded_is_told_by_all(fleet: Fleet, tmp_path: Path) -> None:
    body = {"model": str(tmp_path), "names": ["third"]}
    fleet.clients[0].post("/admin/models", json=body, headers=KEY)
    for client in fleet.clients:
        until(partial(has_status, client, "third", "failed"))
        found = client.get("/admin/models/third", headers=KEY).json()
        assert "unknown_family" in found["error"] or "missing_file" in found["error"]
    assert fleet.clients[0].delete("/admin/models/third", headers=KEY).status_code == httpx.codes.OK


@pytest.mark.process
def test_a_process_that_ends_is_started_again(fleet: Fleet) -> None:
    """With the models that came meanwhile; and what it counted stays counted."""
    before = counted(fleet.pages())  # all of it: each test waits until what it asked is counted
    (parent,) = children(os.getpid())
    victim = children(parent)[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in children(parent) and len(children(parent)) >= COUNT)
    fleet.wait_for(f"mmroute_processes {float(COUNT)}")
    assert counted(fleet.pages()) == before > 0
    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(lambda _: fleet.fresh("POST", TOKENIZE, json={"prompt": "a"}), range(24))
        assert {answer.status_code for answer in asked} == {httpx.codes.OK}


# A supervisor that is told to stop after it has decided to fork.
STOPPED: Final = """
import os
import signal
import socket
from mmroute.server.front.listening import Listen
from mmroute.server.supervisor import supervise

class Shared:
    busy = False

    def begin(self, wake, tell):
        pass

    def before_fork(self):
        os.kill(os.getpid(), signal.SIGTERM)

    def in_fork(self):
        print("forked", flush=True)

def serve(member):
    return 0

print(supervise(Shared(), [socket.socket()], Listen(processes=2), serve))
"""


@pytest.mark.process
def test_a_signal_before_a_fork_leaves_it_out() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "None\n"


@pytest.mark.process
def test_a_forked_process_has_its_own_memory_before_its_first_request(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """It copies each shared page that it writes to, a thousand for the first request: 4 ms."""
    source, options = f"m={small_model('small-qwen2.5-vl')}", ("--processes", "2")
    with running(source, *options, "--drain-seconds", "0", log=tmp_path / "log") as (
        server,
        client,
    ):
        settled(server, COUNT)
        # A process tells its metrics once it serves, which is after its own first requests.
        until(lambda: f"mmroute_processes {float(COUNT)}" in client.get("/metrics").text)
        copied = -sum(map(page_faults, children(server.pid)))
        assert client.post(CHAT, json={"messages": HI}).status_code == httpx.codes.OK
        copied += sum(map(page_faults, children(server.pid)))
    assert copied < 300


def page_faults(pid: int) -> int:
    """The pages that a process has copied or mapped so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.process
def test_nothing_stays_behind_when_the_first_process_is_killed(
    small_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others end, and remove what it cannot remove any more."""
    directory, temporary = str(small_model("small-qwen2.5-vl")), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with running(directory, "--processes", str(COUNT), log=tmp_path / "log") as (server, _):
        assert any(temporary.iterdir())
        others = children(server.pid)
        server.kill()
        server.wait(60)
        until(lambda: not any(temporary.iterdir()))
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))


def test_what_killed_servers_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, living, other = (
        tmp_path / name for name in ("mmroute-metrics-a", "mmroute-metrics-b", "x")
    )
    for path in (left, living, other):
        path.mkdir()
    for path in (left, other):
        os.utime(path, (0, 0))
    with shared_directory() as own:
        assert sorted(tmp_path.iterdir()) == sorted([living, other, own])
    assert sorted(tmp_path.iterdir()) == [living, other]


def counted(page: str) -> float:
    lines = [line for line in page.splitlines() if line.startswith("mmroute_routings_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_process_may_end_with_messages_unread() -> None:
    """The system resets the connection then; it took the first process down with a killed one."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own:
        own.send(b"unread")
        other.close()
        assert heard(own) is None


def test_pages_are_added_up(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path)
    text = (
        '# TYPE a_total counter\na_total{b="c"} 2.0\n# TYPE g gauge\ng 3.0\n'
        "# TYPE m_info gauge\nm_info 1.0\n"
    )
    pages.publish(text.encode())
    (tmp_path / "1").write_text(text, encoding="utf-8")
    both = pages.merged().decode()
    for line in ('a_total{b="c"} 4.0', "g 6.0", "m_info 1.0", "mmroute_processes 2.0"):
        assert line in both
    pages.end(1)
    one = pages.merged().decode()
    for line in ('a_total{b="c"} 4.0', "g 3.0", "m_info 1.0", "mmroute_processes 1.0"):
        assert line in one
