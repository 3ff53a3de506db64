"""Answers to completions: ``/v1/completions/render``.

Source: vLLM ``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.completion import CompletionRequest, Prompt
from mmroute.errors import Reason, quoted
from mmroute.server.api import Reply, exact
from mmroute.server.api_errors import of_reason
from mmroute.server.engines.vllm.model import Call
from mmroute.server.engines.vllm.rendering import rendered, request_id_of, route_ids
from mmroute.server.engines.vllm.truncation import truncated_ids, truncated_text
from mmroute.token_ids import MAX_TOKEN_ID


def answer_completion(request: CompletionRequest, call: Call) -> Reply:
    """The answer of ``/v1/completions/render``."""
    model = call.model
    prompts = request.prompts()
    base = request_id_of("cmpl", request, call)
    routings, answers = [], []
    for number, prompt in enumerate(prompts):
        routing = _routing(request, prompt, call)
        request_id = base if len(prompts) == 1 else f"{base}-{number}"
        answer = rendered(request, routing, call, request_id)
        if request.return_token_offsets and isinstance(prompt, str) and not call.tokens_only:
            answer["token_offsets"] = model.model.tokenizer.offsets(
                prompt, add_special_tokens=request.add_special_tokens
            )
        answers.append(answer)
        routings.append(routing)
    return Reply(answers, routings)


def _routing(request: CompletionRequest, prompt: Prompt, call: Call) -> Routing:
    """The routing of a prompt. The token IDs of a client are returned unchanged, as by vLLM.

    The Python frontend's render route accepts IDs outside the vocabulary, and the engine
    refuses them. They never have block hashes. The Rust frontend refuses them itrequest.
    """
    model = call.model
    if isinstance(prompt, str):
        limited = request.truncate_prompt_tokens is None
        normalizer = model.normalizer if limited else model.unlimited
        routing = normalizer.answer(request.to_request(prompt))
        routing = exact(routing, call.options)
        return truncated_text(request, routing, model, special_tokens=request.add_special_tokens)
    ids = truncated_ids(request, prompt, model.max_model_len)
    if not ids:
        raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered")
    if call.blocks is not None or model.chats.rust:
        routing = model.normalizer.answer(request.to_request(ids))
        return exact(routing, call.options)
    if max(ids) > MAX_TOKEN_ID:
        message = f"{quoted(max(ids))} is no token ID of any model"
        raise of_reason(Reason.TOKEN_OUT_OF_VOCABULARY, message)
    return route_ids(model, request, ids)
