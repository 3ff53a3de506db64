"""The exact answer to a chat, of whichever route."""

from __future__ import annotations

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.chats import request_for
from mmroute.engines.vllm.bodies.rules import ChatFields
from mmroute.requests.request import Request
from mmroute.server.engines.vllm.model import Call
from mmroute.server.engines.vllm.rendering import exact


def exact_chat(chat: ChatFields, call: Call, *, limited: bool) -> Routing:
    """The exact answer to a chat."""
    rules = call.model.chats
    if not rules.harmony:
        rules.check_template(chat)
    request = request_for(chat, call.model.loras, rules)
    if call.options.trusts_mm_kwargs:
        request = Request(*request)
    normalizer = call.model.normalizer if limited else call.model.unlimited
    routing = normalizer.answer(request)
    return exact(routing, call.options)
