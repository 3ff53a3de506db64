"""The exact answer to a chat, of whichever route."""

from __future__ import annotations

from pydantic import BaseModel

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.chats import ChatFields
from mmroute.requests.request import NO_KWARGS, Request
from mmroute.server.api import exact
from mmroute.server.engines.vllm.bodies.rules import ChatRules
from mmroute.server.engines.vllm.model import Call


def exact_chat(chat: ChatFields, call: Call, *, limited: bool) -> Routing:
    """The exact answer to a chat."""
    rules = call.model.chats
    if not rules.harmony:
        rules.check_template(chat)
    request = request_for(chat, rules)
    if call.options.trusts_mm_kwargs:
        request = Request(*request)
    normalizer = call.model.normalizer if limited else call.model.unlimited
    routing = normalizer.answer(request)
    return exact(routing, call.options)


def request_for(chat: ChatFields, rules: ChatRules) -> Request:
    """The request of a chat to a model of which the rules are known."""
    request = chat.to_request()
    if rules.rust:  # which has rules of its own for these
        processor, media_io = chat.mm_processor_kwargs, chat.media_io_kwargs
        generates: bool | None = chat.add_generation_prompt
        if generates is None or "add_generation_prompt" not in chat.model_fields_set:
            generates = not chat.continue_final_message
        plain = {
            name: value.model_dump(by_alias=True, exclude_unset=True)
            if isinstance(value, BaseModel)
            else value
            for name, value in request.api_fields.items()
        }
        return request._replace(
            api_fields=plain,
            add_generation_prompt=generates,
            messages=chat.messages,
            tools=chat.tools,
            mm_processor_kwargs=NO_KWARGS if processor is None else processor,
            media_io_kwargs=NO_KWARGS if media_io is None else media_io,
        )
    if chat.tools == [] and rules.templated and not rules.excludes_tools:
        # There are no tools, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **request.chat_template_kwargs}
        return request._replace(chat_template_kwargs=kwargs)
    return request
