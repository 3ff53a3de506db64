"""Parses a client's body as the engine does that will answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmroute.engine import find_engine
from mmroute.requests.request import Request


def from_openai(body: Mapping[str, Any], *, backend: str = "vllm") -> Request:
    """Parse a client's body of ``/v1/chat/completions`` or ``/v1/completions``.

    All of its fields that change a prompt are in the request: messages, tools, documents, options
    of the chat template. The normalizer that answers knows what its engine was started with: LoRA
    adapters, which a body names as `model`, and what clients may set. For bodies of the Messages
    and Responses APIs, which become a chat by rules of the model, see `answer_body`.

    Args:
        body: the JSON that a client sent. An object with `prompt` or `prompt_embeds` and without
            `messages` is a completion, all others are chats.
        backend: the engine that will answer it: ``vllm``, or a release such as ``vllm==0.28``,
            whose fields it may have; or ``sglang``.

    Raises:
        InexactError: `invalid_request`: the engine refuses the body. `unsupported_field`: the
            body has several prompts, or token IDs of another engine.
        ModelError: `unknown_backend`.

    >>> from mmroute import Normalizer, from_openai
    >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
    >>> body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    >>> normalizer.answer(from_openai(body)).token_ids.tolist()
    [1, 3, 37133, 4]
    """
    return find_engine(backend).read_body(body)
