"""A tokenizer for Ray Serve LLM's KV-aware ingress; Ray's own tokenizer decodes every image."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Mapping
from typing import Any, Protocol

from ray.util.metrics import Counter

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError
from mmroute.server.loading import ModelSource
from mmroute.server.ray.prompts import NoRoutingError, PromptIds, PromptReader, holds_media


class Tokenizer(Protocol):
    """The interface of Ray's own tokenizer."""

    async def tokenize(self, payload: dict[str, Any]) -> list[int] | None:
        """The token IDs of a request's body; None if it does not have exactly one prompt."""


class IngressTokenizer:
    """Takes the place of Ray's ``kv_aware.vllm.tokenizer.Tokenizer``.

    Requests without an exact answer, and those that the engine refuses, are passed to Ray's own
    tokenizer, and counted by reason.

    Args:
        source: the model with the settings of its engine; see `source_of`.
        fallback: Ray's own tokenizer.

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(self, source: ModelSource, fallback: Tokenizer) -> None:
        self._fallback = fallback
        self._reader = PromptReader(source)
        self._reader.wait()
        self._answers = Counter(
            "mmroute_ingress_requests",
            "Requests by who tokenized them, mmroute or fallback; and why mmroute did not",
            ("tokenized_by", "reason"),
        )

    async def tokenize(self, payload: dict[str, Any]) -> PromptIds | None:
        """The token IDs that the engine will hold for a chat or completion.

        Args:
            payload: the parsed body, with ``messages`` or ``prompt``.

        Returns:
            The IDs; None for several prompts, which Ray routes without IDs.

        Raises:
            TokenizeError: Ray's error for a request that the engine refuses.
        """
        media = holds_media(payload)
        try:
            routing = self._reader.routing(payload)
            ids = routing.token_ids.tolist()
        except (NoRoutingError, InexactError) as error:
            self._answers.inc(tags={"tokenized_by": "fallback", "reason": str(error.reason)})
            token_ids = await self._fallback.tokenize(payload)
            return None if token_ids is None else PromptIds(token_ids, None, forwardable=not media)
        self._answers.inc(tags={"tokenized_by": "mmroute", "reason": ""})
        return PromptIds(ids, routing, forwardable=not media)


def source_of(llm_config: Any) -> ModelSource:
    """The model of an ``LLMConfig`` and the options of its engine.

    The version of the engine is that of the installed vLLM. Its environment is read from the
    configuration before Ray's builder changes it. The replicas have the same environment.
    """
    config = llm_config.get_engine_config()
    environment = (config.runtime_env or {}).get("env_vars") or {}
    options = {**config.engine_kwargs, **config.frontend_kwargs}
    name: str = config.actual_hf_model_id
    words = [*(f"{key}={value}" for key, value in environment.items()), "vllm", "serve", name]
    for key, value in options.items():
        words += _option(f"--{key.replace('_', '-')}", value)
    settings = VllmSettings.from_args(shlex.join(words))
    version = importlib.metadata.version("vllm").partition("+")[0]
    return ModelSource(
        name,
        (llm_config.model_id,),
        model_id=name,
        backend=f"vllm=={version}",
        engine_settings=settings,
    )


def _option(option: str, value: Any) -> list[str]:
    """A keyword argument as arguments on the command line of ``vllm serve``."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [option if value else option.replace("--", "--no-", 1)]
    if isinstance(value, Mapping):
        return [option, json.dumps(dict(value))]
    if isinstance(value, list | tuple | set | frozenset):
        return [option, *map(str, value)]
    return [option, str(value)]
