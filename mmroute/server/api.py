"""What the server knows of an engine: its routes, and how their bodies are read and answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.engine import EngineSettings
from mmroute.errors import InexactError, Reason
from mmroute.hashing.hashes import HashSettings
from mmroute.model.resolved import ResolvedModel
from mmroute.normalizer import Normalizer
from mmroute.plugins import Registry
from mmroute.server.api_errors import of_inexact, of_reason

NO_HEADERS: Final[Mapping[str, str]] = {}
# A file's header costs as much as 512 characters of text, and its bytes a 64th of them.
_BYTES_PER_CHARACTER: Final = 64

M = TypeVar("M")


class Cost(NamedTuple):
    """The sizes of a request on which the time of its answer depends."""

    text: int = 0  # bytes beside files and token IDs; a token ID counts as one
    files: int = 0  # characters of data URLs and base64
    items: int = 0  # for headers of files and further prompts, in characters of text
    links: int = 0

    @property
    def characters(self) -> int:
        """The whole cost, as a number of characters of text."""
        return self.text + self.items + self.files // _BYTES_PER_CHARACTER


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The options for answers that an operator sets.

    Attributes:
        strict: whether to refuse `prompt` together with `messages`.
        trusts_mm_kwargs: whether requests to any model may set `mm_processor_kwargs` and
            `media_io_kwargs`, and not only to those whose engine settings say so.
        advice: for some reasons, the message that replaces the one for callers of a normalizer.
    """

    strict: bool = False
    trusts_mm_kwargs: bool = False
    advice: Mapping[Reason, str] = field(default_factory=dict)


class Call(NamedTuple, Generic[M]):
    """The inputs of an answer, beside the body of the request."""

    model: M
    options: ApiOptions
    request_id: str | None = None  # the header ``X-Request-Id``
    own_id: Callable[[], str] = str  # an ID for a request that brings none
    blocks: BlockForm | None = None  # the block hashes to put into the answer
    tokens_only: bool = False  # whether render routes leave out what routers do not read


class Reply(NamedTuple):
    """The answer to a request.

    Attributes:
        body: a value that is ready for JSON; token IDs and masks are arrays of numpy.
        routings: the routings of the prompts in the body.
        headers: further headers of the response.
    """

    body: Any
    routings: Sequence[Routing] = ()
    headers: Mapping[str, str] = NO_HEADERS


class Route(NamedTuple):
    """A route that has a body."""

    summary: str  # what it answers, in a few words
    request: Any  # the class of its bodies, or several
    reply: Callable[[Any, Call[Any]], Reply]  # raises `ApiError`, `InexactError`

    def answer_to(self, request: Any, call: Call[Any]) -> Reply:
        """The answer to a body that was read."""
        try:
            return self.reply(request, call)
        except InexactError as inexact:
            raise of_inexact(inexact) from None


class ServedModel(Protocol):
    """A loaded model, with what the routes of its engine need to answer for it."""

    @property
    def name(self) -> str:
        """Its first served name, by which metrics and logs know it."""

    @property
    def model(self) -> ResolvedModel:
        """The model."""

    @property
    def normalizer(self) -> Normalizer:
        """The normalizer that answers."""

    @property
    def tokenizer_info(self) -> Mapping[str, Any]:
        """The answer of ``/tokenizer_info``."""

    def with_hash_settings(self, settings: HashSettings) -> Self:
        """The same model with other values on which block hashes depend."""


class Schema(Protocol):
    """The schema for the bodies of a route."""

    def request(self, body: Any) -> Any:
        """Check a body. Raises `InexactError`."""


def read(schema: Schema, body: Any) -> Any:
    """The request in a body; see `Schema.request`."""
    try:
        return schema.request(body)
    except InexactError as inexact:
        raise of_inexact(inexact) from None


def exact(routing: Routing, options: ApiOptions) -> Routing:
    """Check that a routing is exact, and return it."""
    if routing.reason is not None:
        raise of_reason(routing.reason, options.advice.get(routing.reason, routing.message))
    return routing


class Api(Protocol):
    """The HTTP API of one engine."""

    routes: Mapping[str, Route]
    own: Collection[str]
    """The paths of routes that the engine itself does not have."""
    first_requests: Mapping[str, Any]
    """Bodies for the first requests to a model, which take long, by the path of their route."""

    def schema(self, path: str, backend: str, settings: EngineSettings) -> Schema:
        """The schema for the bodies of a route of an engine of this version and settings."""

    def cost(self, path: str, body: object, size: int) -> Cost:
        """The cost of a body that was checked, and sent as so many bytes."""

    def load(self, normalizer: Normalizer, name: str) -> ServedModel:
        """A loaded model, for the routes."""


APIS: Final = Registry("server.route", "mmroute.server.engines", {
    "vllm": "vllm.routes:API", "sglang": "sglang.routes:API",
})  # fmt: skip
"""The engines that have routes: name of the engine -> its `Api`."""


@cache
def routes() -> Mapping[str, Route]:
    """The routes of all engines, by their paths; of a path of several, the first engine's."""
    names = reversed(list(APIS.entries))
    return {path: r for name in names for path, r in find_api(name).routes.items()}


@cache
def own_routes() -> frozenset[str]:
    """The paths of routes that no engine has: a fallback is not asked for them."""
    every = (find_api(name) for name in APIS.entries)
    theirs = {path for api in every for path in api.routes if path not in api.own}
    return frozenset(routes().keys() - theirs)


def answer_of(api: Api, model: ServedModel, path: str, body: object, options: ApiOptions) -> Reply:
    """The answer of a route to a body that is not changed; `json` writes the body of the answer."""
    known = model.model
    schema = api.schema(path, known.engine.release.backend, known.settings)
    copied = {**body} if isinstance(body, Mapping) else body
    reply = api.routes[path].answer_to(read(schema, copied), Call(model, options))
    return reply._replace(body=_plain(reply.body))


def _plain(value: Any) -> Any:
    """A value of which `json` writes all, with lists in the place of arrays."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def default_api() -> Api:
    """The API of the requests to a server without models."""
    return find_api(next(iter(APIS.entries)))


@cache
def find_api(engine: str) -> Api:
    """The API of an engine that has one."""
    found: Api = APIS.find(engine)
    return found
