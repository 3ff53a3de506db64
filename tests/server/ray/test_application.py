"""A replica of the server's application, as Ray Serve calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from mmroute import ModelError
from mmroute.server.ray import app, application

MODEL = "small-qwen2.5-vl"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """The values that Ray is told, by the name of the metric and its labels."""
    values: dict[tuple[str, str], float] = {}

    class Gauge:
        def __init__(self, name: str, _: str, labels: tuple[str, ...]) -> None:
            self.name, self.labels = name, labels

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tuple(tags) == self.labels
            values[self.name, ",".join(tags.values())] = value

    monkeypatch.setattr(application, "Gauge", Gauge)
    return values


def replica(**settings: Any) -> Any:
    """One replica's object, without what Ray wraps around it."""
    server: Any = application.MmrouteServer
    return server.func_or_class.__mro__[1](settings)


def models(*configs: dict[str, Any]) -> dict[str, Any]:
    return {"models": list(configs)}


@pytest.mark.usefixtures("memory_is_kept")
def test_models_come_and_go_while_it_runs(
    told: dict[tuple[str, str], float], small_model: Callable[[str], Path]
) -> None:
    one = replica(max_concurrency=9)
    first = {"model": str(small_model(MODEL)), "names": ["a"]}
    other = {"model": str(small_model("small-pixtral-hf")), "names": ["b", "c"]}

    async def run() -> None:
        with pytest.raises(RuntimeError, match="no models"):
            await one.check_health()
        options = '--hf-overrides \'{"model_type": "a"}\''
        with pytest.raises(ModelError, match="hf-overrides"):
            await one.reconfigure(models({**first, "engine_args": options}))
        with pytest.raises(RuntimeError, match="model_not_found"):
            await one.reconfigure(models({"model": "/nowhere"}))
        await one.reconfigure(models(first))
        client = TestClient(one.__serve_build_asgi_app__())

        def status(name: str) -> int:
            return client.post("/tokenize", json={"prompt": "Hi", "model": name}).status_code

        assert [status(name) for name in "abc"] == [200, 404, 404]
        await one.reconfigure(models(first, other))
        assert [status(name) for name in "abc"] == [200, 200, 200]
        await one.reconfigure(models({**other, "names": ["b"]}, {"model": "/nowhere"}))
        assert [status(name) for name in ("a", "b", "c", "/nowhere")] == [404, 200, 404, 503]
        await one.check_health()
        assert told["mmroute_routings_total", "b,exact,"] == 3
        await one._service.close()

    asyncio.run(run())


def test_the_arguments_of_the_application() -> None:
    built: Any = app({"model": "pixtral-12b-2409", "settings": {"max_concurrency": 9}})
    deployment = built._bound_deployment
    assert deployment.user_config == {"models": [{"model": "pixtral-12b-2409"}]}
    assert deployment.init_args == ({"max_concurrency": 9},)
    assert app({})._bound_deployment.user_config is None
    with pytest.raises(ValueError, match="modle"):
        app({"modle": "x"})
