"""The prompts of SGLang's chats and completions, and the bodies to forward to it.

SGLang has no such routes. Their bodies are those of its own API, and their answers have the form of
vLLM's render server as far as a router reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mmroute.answering.routing import Routing
from mmroute.engine import EngineSettings
from mmroute.engines.sglang.bodies import parse_body
from mmroute.engines.sglang.forwarding import sglang_generate
from mmroute.errors import InexactError
from mmroute.hashing.hashes import HashSettings
from mmroute.model.resolved import ResolvedModel
from mmroute.normalizer import Normalizer
from mmroute.placement import PlaceholderRange
from mmroute.requests.request import Request
from mmroute.server.api import Call, Cost, Reply, Route, exact
from mmroute.server.api_errors import bad_request
from mmroute.server.cost import cost_of

_CHAT: Final = "/v1/chat/completions/render"


@dataclass(frozen=True, slots=True)
class SglangModel:
    """A model that can answer. See `mmroute.server.api.ServedModel`."""

    name: str
    normalizer: Normalizer

    @property
    def tokenizer_info(self) -> Mapping[str, Any]:
        return {}  # SGLang has no such route

    @property
    def model(self) -> ResolvedModel:
        return self.normalizer.model

    def with_hash_settings(self, settings: HashSettings) -> SglangModel:
        hashing = replace(self.model.hashing, settings=settings)
        model = replace(self.model, hashing=hashing)
        return replace(self, normalizer=replace(self.normalizer, model=model))


class Body(NamedTuple):
    """A client's body, and the request that it is."""

    sent: Mapping[str, Any]
    request: Request

    @property
    def model(self) -> str | None:
        """The name of the model, without an adapter's behind it."""
        name = self.sent.get("model")
        return name.partition(":")[0] if isinstance(name, str) else None


class _Bodies:
    """The schema of every route."""

    def request(self, body: Any) -> Body:
        return Body(body, parse_body(body))


def render(body: Body, call: Call[SglangModel]) -> Reply:
    """The prompt of a chat or a completion, with the hashes that a query asks for."""
    routing = exact(call.model.normalizer.answer(body.request), call.options)
    hashes = {} if call.blocks is None else call.blocks.of(routing)
    answer: dict[str, Any] = {"token_ids": routing.token_ids, "features": _features(routing)}
    if not call.tokens_only:
        answer |= {"model": body.sent.get("model"), "cache_salt": routing.cache_salt}
    if not routing.reads_cache:
        answer["reads_cache"] = False
    return Reply({**answer, **hashes}, [routing])


def forward(body: Body, call: Call[SglangModel]) -> Reply:
    """The body for ``/generate`` of a chat, whose `mm_hashes` name its images."""
    request = body.request._replace(mm_hashes=body.sent.get("mm_hashes") or ())
    routing = exact(call.model.normalizer.answer(request), call.options)
    sampling = body.sent.get("sampling_params")
    if not isinstance(sampling, dict | None):
        raise bad_request("sampling_params must be an object", "sampling_params")
    try:
        made = sglang_generate(routing, body.sent, sampling_params=sampling or {})
    except InexactError:  # which may be a ValueError as well
        raise
    except ValueError as error:
        raise bad_request(str(error)) from None
    return Reply(made, [routing])


def _features(routing: Routing) -> dict[str, Any] | None:
    """The numbers and the ranges of the images; None if there are none.

    An image whose number only the worker knows has null for it.
    """
    if not routing.placeholders:
        return None
    named = [None if identity is None else identity.value for identity in routing.identities]
    ranges = [_range(placed) for placed in routing.placeholders]
    return {"mm_hashes": {"image": named}, "mm_placeholders": {"image": ranges}}


def _range(placed: PlaceholderRange) -> dict[str, Any]:
    runs = {} if placed.embed_runs is None else {"embed_runs": placed.embed_runs}
    return {"offset": placed.offset, "length": placed.length, **runs}


@dataclass(frozen=True, slots=True)
class SglangApi:
    """See `mmroute.server.api.Api`."""

    routes: Mapping[str, Route]
    own: Mapping[str, str]
    first_requests: Mapping[str, Any]

    def schema(self, _path: str, _backend: str, _settings: EngineSettings) -> _Bodies:
        return _Bodies()

    def cost(self, path: str, body: object, size: int) -> Cost:
        return cost_of(path, body, size)

    def load(self, normalizer: Normalizer, name: str) -> SglangModel:
        return SglangModel(name or normalizer.model.model_id, normalizer)


_ANY: Final = dict[str, Any]
_ROUTES: Final = {
    _CHAT: Route("The prompt of a chat", _ANY, render),
    "/v1/completions/render": Route("The prompt of a completion", _ANY, render),
    "/v1/chat/completions/forward": Route("The body to forward to an engine", _ANY, forward),
}
API: Final = SglangApi(
    _ROUTES,
    dict.fromkeys(_ROUTES, ""),
    {_CHAT: {"messages": [{"role": "user", "content": "a b"}]}},
)
