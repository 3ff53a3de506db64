"""Completions: ``/v1/completions/render``.

Source: vLLM ``entrypoints/openai/completion/protocol.py``,
``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from mmroute.engines.vllm.bodies.errors import refused
from mmroute.engines.vllm.bodies.fields import (
    GenerationRequest,
    TokenIdList,
)
from mmroute.engines.vllm.bodies.request_checks import before_fields, check_completion
from mmroute.requests.request import ClientRequest, Request

Prompt: TypeAlias = str | list[int]
"""A prompt of a completion: a text, or token IDs."""


class CompletionRequest(GenerationRequest):
    """Body of ``/v1/completions/render``."""

    prompt: (
        TokenIdList
        | Annotated[list[TokenIdList], Field(fail_fast=True)]
        | str
        | Annotated[list[str], Field(fail_fast=True)]
        | None
    ) = None
    echo: bool | None = False
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int | None = 1
    suffix: str | None = None
    prompt_embeds: bytes | Annotated[list[bytes], Field(fail_fast=True)] | None = None
    add_special_tokens: bool = True

    _check_first = before_fields(check_completion)

    @property
    def prompt_scores(self) -> int | None:
        if self.prompt_logprobs is None and self.echo:
            return self.logprobs
        return self.prompt_logprobs

    def to_request(self, prompt: Prompt) -> Request:
        """The request for a normalizer."""
        request = ClientRequest(
            model=self.model,
            add_special_tokens=self.add_special_tokens,
            cache_salt=self.cache_salt,
            reads_cache=self.reads_cache,
        )
        if isinstance(prompt, str):
            return request._replace(prompt=prompt)
        return request._replace(prompt_token_ids=prompt)

    def prompts(self) -> list[Prompt]:
        """The prompts of the body."""
        if self.suffix is not None:
            raise refused(
                "suffix is only supported for models with FIM completion rendering", "suffix"
            )
        if self.prompt_embeds not in (None, []):
            raise refused(
                "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds"
            )
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if not given:
            raise refused("You must pass at least one prompt", "prompt")
        return [given] if isinstance(given[0], int) else given  # type: ignore[return-value]  # all of one kind
