"""Models that come and go while the server runs."""

from __future__ import annotations

import gc
import random
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from chat_requests import CHAT, HI
from server_helpers import error_of, serving
from starlette.testclient import TestClient
from waiting import until

from mmroute import Normalizer, Reason
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import ModelSource, ServerSettings, create_app, loading
from mmroute.server.models import Models, reclaim

pytestmark = pytest.mark.usefixtures("memory_is_kept")

MODELS: Final = "/admin/models"
KEY: Final = {"authorization": "Bearer secret"}
ADMIN: Final = ServerSettings(admin_key="secret")


@pytest.fixture
def first(small_model: Callable[[str], Path]) -> Models:
    return Models([ModelSource(str(small_model("small-llava-1.5")), ("first",))])


@pytest.fixture
def client(first: Models) -> Iterator[TestClient]:
    with serving(first, ADMIN) as client:
        client.headers.update(KEY)
        yield client


@pytest.fixture(scope="module")
def unchanged(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    """A client for tests that change no model."""
    source = ModelSource(str(small_model("small-llava-1.5")), ("first",))
    with serving([source], ADMIN) as client:
        client.headers.update(KEY)
        yield client


def wait_for(client: TestClient, name: str) -> dict[str, Any]:
    until(lambda: client.get(f"{MODELS}/{name}").json()["status"] != "loading")
    found: dict[str, Any] = client.get(f"{MODELS}/{name}").json()
    return found


def ask(client: TestClient, name: str | None) -> Any:
    return client.post(CHAT, json={"model": name, "messages": HI})


def test_there_are_no_such_routes_without_a_key(first: Models) -> None:
    with serving(first) as client:
        assert client.get(MODELS).status_code == httpx.codes.NOT_FOUND
        assert client.post(MODELS, json={"model": "x"}).status_code == httpx.codes.NOT_FOUND


def test_the_key_is_for_these_routes_alone(first: Models) -> None:
    with serving(first, ADMIN) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            for method, path in (("GET", MODELS), ("POST", MODELS), ("DELETE", f"{MODELS}/first")):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert ask(client, "first").status_code == httpx.codes.OK


def test_a_model_comes_and_goes(client: TestClient, small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    assert ask(client, "org/qwen").status_code == httpx.codes.NOT_FOUND
    body = {"model": directory, "names": ["org/qwen", "alias"], "model_id": "org/qwen"}
    added = client.post(MODELS, json=body)
    assert added.status_code == httpx.codes.ACCEPTED
    assert added.json()["status"] == "loading"
    found = wait_for(client, "org/qwen")
    own = Normalizer.from_pretrained(directory)
    right = own.normalize(messages=HI).token_ids.tolist()
    assert found == {
        "names": ["org/qwen", "alias"], "model": directory, "model_id": "org/qwen",
        "revision": None, "backend": "vllm", "status": "ready", "error": None,
        "max_model_len": own.model.max_model_len,
    }  # fmt: skip
    assert [entry["names"][0] for entry in client.get(MODELS).json()["data"]] == [
        "first", "org/qwen",
    ]  # fmt: skip
    for name in ("org/qwen", "alias"):
        assert ask(client, name).json()["token_ids"] == right
    assert "alias" in [card["id"] for card in client.get("/v1/models").json()["data"]]

    assert client.delete(f"{MODELS}/alias").json()["names"] == ["org/qwen", "alias"]
    for name in ("org/qwen", "alias"):
        assert error_of(ask(client, name)) == (404, "NotFoundError", "model")
    assert error_of(client.delete(f"{MODELS}/alias")) == (404, "NotFoundError", "model")
    assert ask(client, None).status_code == httpx.codes.OK


def test_many_who_ask_at_once_load_it_once(
    client: TestClient, small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = Normalizer.from_pretrained

    def counted(model: str, **more: Any) -> Normalizer:
        loaded.append(model)
        loaded_: Normalizer = load(model, **more)
        return loaded_

    monkeypatch.setattr(Normalizer, "from_pretrained", counted)
    directory = str(small_model("small-qwen2.5-vl"))
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(lambda _: client.post(MODELS, json={"model": directory}), range(32))
        )
    assert {answer.status_code for answer in answers} <= {httpx.codes.OK, httpx.codes.ACCEPTED}
    assert wait_for(client, directory)["status"] == "ready"
    assert loaded == [directory]


@pytest.fixture
def may_end(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set to let models be loaded, which they wait for."""
    event, load = threading.Event(), Normalizer.from_pretrained

    def slow(model: str, **more: Any) -> Normalizer:
        event.wait(60)
        loaded_: Normalizer = load(model, **more)
        return loaded_

    monkeypatch.setattr(Normalizer, "from_pretrained", slow)
    return event


def test_what_is_removed_while_it_is_loaded_is_not_served(
    client: TestClient,
    first: Models,
    small_model: Callable[[str], Path],
    may_end: threading.Event,
) -> None:
    client.post(MODELS, json={"model": str(small_model("small-qwen2.5-vl")), "names": ["late"]})
    loading = ask(client, "late")
    assert error_of(loading) == (503, "ServiceUnavailableError", None)
    assert loading.headers["retry-after"] == "1"
    assert client.get("/health").status_code == httpx.codes.OK  # those from the beginning are there
    entry, ended = first.entry("late"), threading.Event()
    entry.loading.add_done_callback(lambda _: ended.set())  # after the entry's own
    client.delete(f"{MODELS}/late")
    may_end.set()
    assert ended.wait(60)
    assert entry.loaded is not None
    assert ask(client, "late").status_code == httpx.codes.NOT_FOUND


def test_a_request_is_completed_whose_model_is_removed_meanwhile(
    client: TestClient, first: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Normalizer.answer

    def removed(normalizer: Normalizer, *request: Any, **how: Any) -> Any:
        first.remove("first")
        return answer(normalizer, *request, **how)

    monkeypatch.setattr(Normalizer, "answer", removed)
    assert ask(client, "first").status_code == httpx.codes.OK
    assert ask(client, "first").status_code == httpx.codes.NOT_FOUND


def test_a_model_that_fails_says_why_and_may_be_tried_again(
    client: TestClient, small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    body = {"model": str(directory), "names": ["late"]}
    client.post(MODELS, json=body)
    found = wait_for(client, "late")
    assert found["status"] == "failed"
    assert found["error"].split(":")[0] in set(Reason)
    assert error_of(ask(client, "late")) == (503, "ServiceUnavailableError", None)
    assert "late" not in [card["id"] for card in client.get("/v1/models").json()["data"]]
    shutil.copytree(small_model("small-qwen2.5-vl"), directory, dirs_exist_ok=True)
    assert client.post(MODELS, json=body).status_code == httpx.codes.ACCEPTED
    assert wait_for(client, "late")["status"] == "ready"
    assert ask(client, "late").status_code == httpx.codes.OK


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, (400, "Bad Request", "body.model")),
        ({"model": ""}, (400, "Bad Request", "body.model")),
        ({"model": "x", "names": []}, (400, "Bad Request", "body.names")),
        ({"model": "x", "names": ["a", "a"]}, (400, "Bad Request", "body.names")),
        ({"model": "x", "names": "a"}, (400, "Bad Request", "body.names")),
        ({"model": "x", "nmaes": ["a"]}, (400, "Bad Request", "body.nmaes")),
        ({"model": "x", "engine_args": "--block-sise 8"}, (400, "Bad Request", "body.engine_args")),
        ({"model": "x", "names": ["first"]}, (409, "ConflictError", "names")),
    ],
)
def test_what_cannot_be_added(
    unchanged: TestClient, body: dict[str, Any], found: tuple[int, str, str]
) -> None:
    assert error_of(unchanged.post(MODELS, json=body)) == found
    assert len(unchanged.get(MODELS).json()["data"]) == 1


def test_another_model_takes_the_names_of_one_that_failed(
    client: TestClient, small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    client.post(MODELS, json={"model": str(tmp_path), "names": ["late", "later"]})
    assert wait_for(client, "late")["status"] == "failed"
    assert "late" not in error_of_text(ask(client, "nobody"))
    right = {"model": str(small_model("small-qwen2.5-vl")), "names": ["late"]}
    assert client.post(MODELS, json=right).status_code == httpx.codes.ACCEPTED
    assert wait_for(client, "late")["status"] == "ready"
    assert ask(client, "later").status_code == httpx.codes.NOT_FOUND


def error_of_text(response: Any) -> str:
    return str(response.json()["error"]["message"])


def test_a_name_in_use_leaves_a_failed_model_as_it_is(client: TestClient, tmp_path: Path) -> None:
    client.post(MODELS, json={"model": str(tmp_path), "names": ["late"]})
    wait_for(client, "late")
    both = client.post(MODELS, json={"model": "x", "names": ["late", "first"]})
    assert error_of(both) == (409, "ConflictError", "names")
    assert client.get(f"{MODELS}/late").json()["status"] == "failed"


def test_a_model_that_was_removed_does_not_end_the_server(
    small_model: Callable[[str], Path], tmp_path: Path, may_end: threading.Event
) -> None:
    """Of three models one is removed while it is loaded, and fails; then another one fails."""
    failures: list[str] = []
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    models = Models([
        ModelSource(str(tmp_path / "a"), ("a",)),
        ModelSource(str(small_model("small-qwen2.5-vl")), ("qwen",)),
        ModelSource(str(tmp_path / "b"), ("b",)),
    ])  # fmt: skip
    app = create_app(models, ADMIN, on_failure=failures.append)
    with TestClient(app, headers=KEY) as client:
        assert client.delete(f"{MODELS}/a").status_code == httpx.codes.OK
        may_end.set()
        until(lambda: failures)
    assert len(failures) == 1
    assert str(tmp_path / "b") in failures[0]


def test_who_names_no_model_never_gets_another_one(
    client: TestClient, first: Models, small_model: Callable[[str], Path]
) -> None:
    source = first.entry("first").source
    client.post(MODELS, json={"model": str(small_model("small-qwen2.5-vl")), "names": ["other"]})
    wait_for(client, "other")
    before = ask(client, None).json()["token_ids"]
    client.delete(f"{MODELS}/first")
    assert error_of(ask(client, None)) == (404, "NotFoundError", "model")
    client.post(MODELS, json={"model": source.model, "names": ["first"]})
    wait_for(client, "first")
    assert ask(client, None).json()["token_ids"] == before


def test_the_document_has_these_routes_where_they_are(unchanged: TestClient) -> None:
    paths = unchanged.get("/openapi.json").json()["paths"]
    assert {"/admin/models", "/admin/models/{name}"} <= set(paths)
    assert {"get", "put", "delete"} <= set(paths["/admin/models/{name}"])


def test_an_adapter_s_name_does_not_remove_its_model(small_model: Callable[[str], Path]) -> None:
    settings = VllmSettings.from_args("--enable-lora --lora-modules sql=/adapters/sql")
    source = ModelSource(str(small_model("small-llava-1.5")), ("first",), engine_settings=settings)
    with serving([source], ADMIN) as client:
        client.headers.update(KEY)
        refused = client.delete(f"{MODELS}/sql")
        assert error_of(refused) == (404, "NotFoundError", "model")
        assert "first" in error_of_text(refused)
        for name in ("sql", "first"):
            assert ask(client, name).status_code == httpx.codes.OK


def test_the_last_model_may_go(client: TestClient) -> None:
    assert client.delete(f"{MODELS}/first").status_code == httpx.codes.OK
    assert error_of(ask(client, None)) == (404, "NotFoundError", "model")
    assert client.get("/v1/models").json()["data"] == []
    assert client.get("/version").status_code == httpx.codes.OK
    assert client.get("/health").status_code == httpx.codes.SERVICE_UNAVAILABLE


def test_an_empty_name_is_no_model(unchanged: TestClient) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = unchanged.request(method, f"{MODELS}/", json={"model": "x"})
        assert error_of(answer) == (404, "NotFoundError", "model")
    assert ask(unchanged, None).status_code == httpx.codes.OK


def test_a_model_is_replaced_in_one_step(
    client: TestClient,
    first: Models,
    small_model: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what it held is free."""
    monkeypatch.setattr("mmroute.server.models.reclaim", reclaim)
    held = weakref.ref(first.entry("first"))
    directory, gate, load = str(small_model("small-qwen2.5-vl")), threading.Event(), loading.load

    def wait(*given: Any, **more: Any) -> Any:
        assert gate.wait(60)
        return load(*given, **more)

    monkeypatch.setattr("mmroute.server.models.load", wait)
    old = ask(client, "first").json()["token_ids"]
    own = Normalizer.from_pretrained(directory).normalize(messages=HI).token_ids.tolist()
    assert own != old
    asked = client.put(f"{MODELS}/first", json={"model": directory, "names": ["first", "more"]})
    assert asked.status_code == httpx.codes.ACCEPTED
    assert asked.json()["replacement"]["status"] == "loading"
    assert ask(client, "first").json()["token_ids"] == old  # until the other one is there
    gate.set()

    def is_replaced() -> bool:
        assert ask(client, "first").json()["token_ids"] in (old, own)
        return bool(client.get(f"{MODELS}/first").json()["model"] == directory)

    until(is_replaced)
    for name in ("first", "more", None):
        assert ask(client, name).json()["token_ids"] == own
    assert client.get("/health").status_code == httpx.codes.OK
    until(lambda: held() is None)


def test_no_full_collection_of_garbage_walks_a_loaded_model(first: Models) -> None:
    gc.unfreeze()
    for entry in first.load():
        entry.loading.result()
    model = first.find(None).normalizer.model
    assert not any(found is model for found in gc.get_objects())
    first.close()
    gc.unfreeze()


def test_a_replacement_keeps_its_engine(small_model: Callable[[str], Path]) -> None:
    """With other options, or another model string, no hash would be equal."""
    own, other = str(small_model("small-llava-1.5")), str(small_model("small-qwen2.5-vl"))
    line = "PYTHONHASHSEED=7 vllm serve org/llava --block-size 2"
    settings = VllmSettings.from_args(line)
    models = Models([ModelSource(own, ("first",), engine_settings=settings)])

    with serving(models, ADMIN) as client:
        client.headers.update(KEY)

        def replaced(**body: str) -> tuple[str, Any]:
            before = models.entry("first")
            client.put(f"{MODELS}/first", json=body)
            until(lambda: models.entry("first") is not before)
            answered = client.post(f"{CHAT}?hashes=int", json={"messages": HI}).json()
            return models.entry("first").source.model_string, answered["block_hashes"]

        asked = client.post(f"{CHAT}?hashes=int", json={"messages": HI}).json()["block_hashes"]
        assert replaced(model=own) == ("org/llava", asked)
        assert replaced(model=own, model_id="org/b") == ("org/b", asked)
        line = line.replace("llava", "qwen").replace("--block-size 2", "--block-size 4")
        model_string, hashes = replaced(model=other, engine_args=line)
    right = Normalizer.from_pretrained(other, engine_settings=VllmSettings.from_args(line))
    assert model_string == "org/qwen"
    assert hashes == right.normalize(messages=HI).block_hashes().event_ints()


def test_after_many_changes_each_name_has_what_was_said_last(
    client: TestClient, small_model: Callable[[str], Path]
) -> None:
    """Also where a change is longer than any buffer: engines take whole templates in their line."""
    draw = random.Random(6)
    directories = [str(small_model(name)) for name in ("small-qwen2.5-vl", "small-llava-1.5")]
    expected = {"first": directories[1]}

    def settled(name: str) -> bool:
        found = client.get(f"{MODELS}/{name}").json()
        return found["status"] == "ready" and "replacement" not in found

    for _ in range(12):
        name, model = draw.choice(["first", "a", "b"]), draw.choice(directories)
        template = f"--chat-template '{{{{ messages }}}}{'x' * draw.choice([1, 100_000])}'"
        body = {"model": model, "names": [name], "engine_args": template}
        change = draw.choice(["POST", "PUT", "DELETE"])
        path = MODELS if change == "POST" else f"{MODELS}/{name}"
        answer = client.request(change, path, json=None if change == "DELETE" else body)
        if (change == "POST" and name not in expected) or (change == "PUT" and name in expected):
            assert answer.status_code == httpx.codes.ACCEPTED
            expected[name] = model
        elif change == "DELETE" and name in expected:
            assert answer.status_code == httpx.codes.OK
            del expected[name]
        else:
            # It is there already, as it is or as another one; or it is not there.
            assert answer.status_code in ((200, 409) if change == "POST" else (404,))
        for known in expected:
            until(partial(settled, known))
    found = client.get(MODELS).json()["data"]
    assert {entry["names"][0]: entry["model"] for entry in found} == expected
    assert {entry["status"] for entry in found} <= {"ready"}


def test_a_replacement_that_fails_changes_nothing(client: TestClient, tmp_path: Path) -> None:
    client.put(f"{MODELS}/first", json={"model": str(tmp_path)})
    path = f"{MODELS}/first"
    until(lambda: client.get(path).json()["replacement"]["status"] != "loading")
    found = client.get(path).json()
    assert (found["status"], found["replacement"]["status"]) == ("ready", "failed")
    assert found["replacement"]["error"]
    assert ask(client, "first").status_code == httpx.codes.OK
    assert error_of(client.put(f"{MODELS}/none", json={"model": "x"}))[0] == 404
    wrong = client.put(f"{MODELS}/first", json={"model": "x", "names": ["other"]})
    assert error_of(wrong) == (400, "Bad Request", "body.names")


def test_each_model_has_a_readiness_of_its_own(client: TestClient, tmp_path: Path) -> None:
    client.post(MODELS, json={"model": str(tmp_path), "names": ["broken"]})
    wait_for(client, "broken")
    assert client.get("/readyz?model=broken").status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert client.get("/readyz?model=first").status_code == httpx.codes.OK
    assert client.get("/readyz?model=none").status_code == httpx.codes.NOT_FOUND
    everything = client.get("/readyz")  # of the command line
    assert everything.status_code == httpx.codes.OK
    assert everything.json()["models"] == {"first": "ready", "broken": "failed"}
    assert client.get("/livez").status_code == client.post("/ping").status_code == httpx.codes.OK
    assert client.get("/load").json() == {"server_load": 0}
    assert client.get("/kv_event_sources").json() == {}
