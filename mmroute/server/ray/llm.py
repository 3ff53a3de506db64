"""The ingress of Ray Serve LLM's KV-aware routing, with mmroute as its tokenizer.

Source: Ray 2.60.0 ``llm/_internal/serve/core/ingress/router.py`` (`LLMRouter`) and
``routing_policies/kv_aware`` below ``serve``. Needs vLLM, as Ray Serve LLM does.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any, Final
from unittest import mock

from ray.llm._internal.serve.core.ingress.router import LLMRouter as RayLLMRouter
from ray.llm._internal.serve.routing_policies.kv_aware.kv_aware_router import KVAwareRouter
from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from mmroute.errors import ModelError
from mmroute.server.ray.alpha import INGRESS_ROUTER
from mmroute.server.ray.prompts import PromptIds
from mmroute.server.ray.router import BlockHashRouter
from mmroute.server.ray.tokenizer import IngressTokenizer, source_of

_LOG: Final = logging.getLogger(__name__)


class LLMRouter(RayLLMRouter):  # type: ignore[misc]  # Ray has no types here
    """Ray's ingress router, with mmroute's tokenizer before its own.

    If mmroute does not cover the model or an option of its engine, an error is logged and Ray's
    tokenizer gets all requests.

    Token IDs of chats with images are not sent ahead to the engine, because vLLM 0.29, which Ray
    2.60 installs, would drop the images (Ray's own ``TODO`` in ``prompt_token_forwarding.py``).
    """

    _tokenizer: Any

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self,
        server: DeploymentHandle,
        llm_config: Any = None,
        base_model_id: str | None = None,
    ) -> None:
        await super().__init__(server, llm_config, base_model_id)
        if llm_config is None:
            return
        try:
            source = source_of(llm_config)
            self._tokenizer = await asyncio.to_thread(IngressTokenizer, source, self._tokenizer)
        except ModelError as error:
            _LOG.error("all requests are tokenized by Ray: %s: %s", error.reason, error)

    def _push_prompt_tokens(
        self, *, token_endpoint: str | None, replica_id: str, request_token_ids: list[int]
    ) -> str | None:
        if isinstance(request_token_ids, PromptIds) and not request_token_ids.forwardable:
            return None
        key: str | None = super()._push_prompt_tokens(
            token_endpoint=token_endpoint,
            replica_id=replica_id,
            request_token_ids=request_token_ids,
        )
        return key


class KVBlockHashRouter(BlockHashRouter, KVAwareRouter):  # type: ignore[misc]  # likewise
    """`BlockHashRouter` for Ray Serve LLM, which supplies a `KVAwareRouter` with events and IDs.

    Requests bring their routing from `IngressTokenizer`, so it needs no ``model``.
    """


def build_openai_app(builder_config: dict[str, Any]) -> Application:
    """Ray's ``build_openai_app`` with this module's `LLMRouter` in place of Ray's."""
    with mock.patch.object(importlib.import_module(INGRESS_ROUTER), "LLMRouter", LLMRouter):
        builder = importlib.import_module("ray.llm._internal.serve.core.ingress.builder")
        built: Application = builder.build_openai_app(builder_config)
    return built
