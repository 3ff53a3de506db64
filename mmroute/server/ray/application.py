"""The server as an application of Ray Serve: ``serve run mmroute.server.ray:app model=NAME``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.metrics import Gauge

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import (
    AddModelRequest,
    Change,
    Entry,
    Models,
    ModelSource,
    ServerSettings,
    Service,
    respond,
)

_NOT_REPORTED: Final = "_created"  # the time at which a counter was made, which never changes


class ModelConfig(AddModelRequest):
    """A model, as in the body of ``POST /admin/models``, and its engine's command line."""

    engine_args: str = ""

    def source(self) -> ModelSource:
        """The model to load."""
        settings = VllmSettings.from_args(self.engine_args)
        return ModelSource(
            self.model,
            tuple(self.names or settings.served_names or (self.model,)),
            model_id=self.model_id,
            revision=self.revision,
            backend=self.backend or "vllm",
            engine_settings=settings,
        )


class UserConfig(BaseModel):
    """The content of Ray Serve's ``user_config``, which can be changed while replicas run."""

    model_config = ConfigDict(extra="forbid")

    models: list[ModelConfig] = Field(min_length=1)


class ApplicationConfig(BaseModel):
    """The arguments of `app`.

    Attributes:
        model: one model, which is served by its own name; None if ``user_config`` has the models.
        settings: the fields of `ServerSettings`.
        deployment: the options of the deployment, such as ``autoscaling_config``.
    """

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    deployment: dict[str, Any] = Field(default_factory=dict)


@serve.deployment(
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 8},
    max_ongoing_requests=256,
)
@serve.ingress()
class MmrouteServer:
    """One replica: the routes of ``mmroute serve``, for the models of ``user_config``."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = ServerSettings(**settings)
        self._service: Service | None = None
        self._models: Models | None = None
        self._gauges: dict[str, Gauge] = {}

    def __serve_build_asgi_app__(self) -> Any:
        """The ASGI application. Ray Serve calls this before `reconfigure`."""

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and self._service is not None:
                await respond(self._service, scope, receive, send)
            elif scope["type"] == "lifespan":
                for phase in ("startup", "shutdown"):
                    await receive()
                    await send({"type": f"lifespan.{phase}.complete"})

        return application

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Serve these models and no others; each answers as soon as it is loaded."""
        wanted = [model.source() for model in UserConfig.model_validate(user_config).models]
        if self._models is not None:
            await _loaded(_changed(self._models, wanted))
            return
        models = Models(wanted, links=self._settings.links)
        service = Service(models, self._settings)
        await _loaded(models.load())
        failed = [entry.error for entry in models.entries() if entry.error]
        if failed:
            raise RuntimeError("; ".join(failed))
        await service.start(load=False)
        self._models, self._service = models, service

    async def check_health(self) -> None:
        """Report the metrics to Ray. Ray Serve calls this every ten seconds."""
        if self._service is None:
            raise RuntimeError("no models: give model=NAME, or a user_config with `models`")
        page = self._service.metrics.page().decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if not sample.name.endswith(_NOT_REPORTED):
                    self._report(sample.name, family.documentation, sample.labels, sample.value)

    def _report(self, name: str, description: str, labels: Mapping[str, str], value: float) -> None:
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(name, description, tuple(labels))
        gauge.set(value, tags=dict(labels))


def app(arguments: Mapping[str, Any]) -> serve.Application:
    """The application, for ``serve run`` and the ``import_path`` of a config file."""
    config = ApplicationConfig.model_validate(arguments)
    options = dict(config.deployment)
    if config.model is not None:
        options.setdefault("user_config", {"models": [{"model": config.model}]})
    deployment: serve.Deployment = MmrouteServer
    return deployment.options(**options).bind(config.settings)


def _changed(models: Models, wanted: Iterable[ModelSource]) -> list[Entry]:
    """Begin to load new models, and remove others; the entries that are being loaded."""
    new = [source for source in wanted if source not in {e.source for e in models.entries()}]
    names = {name for source in wanted for name in source.names}
    for entry in models.entries():
        if names.isdisjoint(entry.source.names):
            models.apply(Change("remove", entry.source.names[0]))
    changed = []
    for source in new:
        served = {name for name, _ in models.names()}
        taken = next((name for name in source.names if name in served), "")
        entry = models.apply(Change("replace" if taken else "add", taken, source))
        changed.append(entry.replacement or entry)
    return changed


async def _loaded(entries: Iterable[Entry]) -> None:
    """Wait until models are loaded or have failed."""
    waiting = [asyncio.wrap_future(entry.loading) for entry in entries]
    await asyncio.gather(*waiting, return_exceptions=True)
