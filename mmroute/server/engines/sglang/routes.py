"""The routes for SGLang: prompts, counts of tokens, and the bodies to forward to it.

SGLang has no routes that render. Their bodies are those of its own API, and their answers have the
form of vLLM's render server as far as a router reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from mmroute.answering.routing import Routing
from mmroute.engine import EngineSettings
from mmroute.engines.judging import judged
from mmroute.engines.sglang.bodies import EXTRA_KEY, parse_body
from mmroute.engines.sglang.conversation import ConversationChat
from mmroute.engines.sglang.forwarding import sglang_generate
from mmroute.engines.sglang.message_schema import AS_TEXT, HANDED_ON, UNCHECKED, check_values
from mmroute.errors import InexactError, Reason, invalid, json_type
from mmroute.normalizer import Normalizer
from mmroute.placement import PlaceholderRange
from mmroute.requests.request import Request
from mmroute.server.api import Call, Cost, Reply, Route, exact
from mmroute.server.api_errors import bad_request
from mmroute.server.cost import cost_of
from mmroute.server.engines.sglang import messages, responses
from mmroute.server.engines.sglang.messages_schema import CountedMessages, Messages
from mmroute.server.engines.sglang.model import SglangModel
from mmroute.server.engines.sglang.responses import Responses
from mmroute.server.engines.sglang.tokenization import (
    Detokenize,
    Tokenize,
    detokenize,
    rendered_ids,
    tokenize,
)

T = TypeVar("T")

_CHAT: Final = "/v1/chat/completions/render"


@dataclass(frozen=True, slots=True)
class Body(Generic[T]):
    """A client's body, and what was read from it."""

    sent: Mapping[str, Any]
    read: T

    @property
    def model(self) -> str | None:
        """The name of the model, without an adapter's behind it."""
        name = self.sent.get("model")
        return name.partition(":")[0] if isinstance(name, str) else None


class _Schema(NamedTuple):
    """The schema of a route."""

    reader: Callable[[Any], Any]

    def request(self, body: Any) -> Body[Any]:
        return Body(body, self.reader(body))


def _reader(schema: type[BaseModel]) -> Callable[[Any], Any]:
    def read(body: Any) -> Any:
        if not isinstance(body, Mapping):
            raise invalid(f"the body must be an object, found {json_type(body)}")
        check_values("body", body)
        return judged(schema.model_validate, body, "body")

    return read


def render(body: Body[Request], call: Call[SglangModel]) -> Reply:
    """The prompt of a chat or a completion, with the hashes that a query asks for."""
    return _rendered(body, body.read, call)


def render_messages(body: Body[Messages], call: Call[SglangModel]) -> Reply:
    """The prompt of a request of the Anthropic Messages API."""
    call.model.check_version()
    chat = messages.chat_of(body.read, call.model.rules)
    messages.check_output(body.read, chat)
    return _rendered(body, parse_body(chat), call)


def count_messages(body: Body[CountedMessages], call: Call[SglangModel]) -> Reply:
    """The number of tokens of a request of that API, as it is before images are expanded."""
    call.model.check_version()
    chat = call.model.model.chat
    if isinstance(chat, ConversationChat) and chat.encoder.multimodal:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD, "the engine counts no tokens for the template of this model"
        )
    request = parse_body(messages.chat_of(body.read, call.model.rules))
    ids = rendered_ids(call.model, _unchecked(request))
    return Reply({"input_tokens": len(ids)}, [Routing(_token_ids=ids)])


def render_responses(body: Body[Responses], call: Call[SglangModel]) -> Reply:
    """The prompt of a request of the OpenAI Responses API."""
    call.model.check_version()
    fields = {
        name: value
        for name, value in responses.chat_of(body.read, call.model.rules).items()
        if value is not None
    }
    kept = {"tool_choice": fields.pop("tool_choice"), HANDED_ON: AS_TEXT}
    if body.read.extra_key is not None:
        kept[EXTRA_KEY] = body.read.extra_key
    request = Request(**fields, cache_salt=body.read.cache_salt, api_fields=kept)
    return _rendered(body, _unchecked(request), call)


def count_responses(body: Body[Responses], call: Call[SglangModel]) -> Reply:
    """The number of tokens of a request of that API. SGLang has no such route."""
    reply = render_responses(body, call._replace(blocks=None, tokens_only=True))
    count = len(reply.body["token_ids"])
    return Reply({"object": "response.input_tokens", "input_tokens": count}, reply.routings)


def _unchecked(request: Request) -> Request:
    """A request whose tools need not have a JSON Schema."""
    return request._replace(api_fields={**request.api_fields, UNCHECKED: True})


def _rendered(body: Body[Any], request: Request, call: Call[SglangModel]) -> Reply:
    routing = exact(call.model.normalizer.answer(request), call.options)
    hashes = {} if call.blocks is None else call.blocks.of(routing)
    answer: dict[str, Any] = {"token_ids": routing.token_ids, "features": _features(routing)}
    if not call.tokens_only:
        answer |= {"model": body.sent.get("model"), "cache_salt": routing.cache_salt}
    if not routing.reads_cache:
        answer["reads_cache"] = False
    return Reply({**answer, **hashes}, [routing])


def forward(body: Body[Request], call: Call[SglangModel]) -> Reply:
    """The body for ``/generate`` of a chat, whose `mm_hashes` name its images."""
    request = body.read._replace(mm_hashes=body.sent.get("mm_hashes") or ())
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

    def schema(self, path: str, _backend: str, _settings: EngineSettings) -> _Schema:
        known = self.routes[path].request
        return _Schema(parse_body if known is _ANY else _reader(known))

    def cost(self, path: str, body: object, size: int) -> Cost:
        return cost_of(path, body, size)

    def load(self, normalizer: Normalizer, name: str) -> SglangModel:
        return SglangModel.of(normalizer, name)


_ANY: Final = dict[str, Any]
ROUTES: Final[Mapping[str, Route]] = {
    _CHAT: Route("The prompt of a chat", _ANY, render),
    "/v1/completions/render": Route("The prompt of a completion", _ANY, render),
    "/v1/chat/completions/forward": Route("The body to forward to an engine", _ANY, forward),
    "/v1/messages/render": Route(
        "The prompt of a request of the Anthropic Messages API", Messages, render_messages
    ),
    "/v1/responses/render": Route(
        "The prompt of a request of the OpenAI Responses API", Responses, render_responses
    ),
    "/v1/messages/count_tokens": Route(
        "The tokens of a request of the Anthropic Messages API", CountedMessages, count_messages
    ),
    "/v1/responses/input_tokens": Route(
        "The tokens of a request of the OpenAI Responses API", Responses, count_responses
    ),
    "/tokenize": Route(
        "Token IDs of a text or a chat", Tokenize, lambda body, call: tokenize(body.read, call)
    ),
    "/detokenize": Route(
        "The text of token IDs", Detokenize, lambda body, call: detokenize(body.read, call)
    ),
}
_OWN: Final = tuple(
    path for path in ROUTES if path.endswith(("/render", "/forward", "/input_tokens"))
)
API: Final = SglangApi(
    ROUTES,
    dict.fromkeys(_OWN, ""),
    {_CHAT: {"messages": [{"role": "user", "content": "a b"}]}},
)
