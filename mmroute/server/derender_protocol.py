"""The requests of vLLM's derender routes, with its names, defaults and order of fields.

Source: vLLM 0.33.0 ``entrypoints/scale_out/token_in_token_out/protocol.py``.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from mmroute.server.protocol import ChatCompletionRequest, CompletionRequest, TokenIdList

__all__ = [
    "DerenderChat", "DerenderChatRequest", "DerenderChatStreamRequest", "DerenderCompletion",
    "DerenderCompletionRequest", "DerenderCompletionStreamRequest", "DerenderStreamState",
    "GeneratedChoice",
]  # fmt: skip


def _of_a_vocabulary(ids: list[int]) -> list[int]:
    if ids and min(ids) < 0:
        raise ValueError("token_ids must not contain negative values")
    return ids


_Ids: TypeAlias = Annotated[list[int], Field(fail_fast=True), AfterValidator(_of_a_vocabulary)]
_Count: TypeAlias = Annotated[int, Field(ge=0)]


class GeneratedChoice(BaseModel):
    """A part of an answer of ``/inference/v1/generate``."""

    index: int
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: _Ids | None = None
    logprobs: dict[str, Any] | None = None


class GenerateTokensChoice(GeneratedChoice):
    """A whole answer of ``/inference/v1/generate``."""

    finish_reason: str | None = "stop"


class _Generated(BaseModel):
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex[:16])
    prompt_token_ids: TokenIdList | None = None
    metrics: dict[str, Any] | None = None
    output_mode: Literal["tokens"] = "tokens"


class GenerateTokensResponse(_Generated):
    """The answers to one prompt."""

    prompt_logprobs: list[dict[str, Any] | None] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    choices: list[GenerateTokensChoice]


class UsageInfo(BaseModel):
    """The numbers of tokens so far."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class GenerateTokensStreamResponse(_Generated):
    """A part of one answer."""

    usage: UsageInfo | None = None
    choices: list[GeneratedChoice]


class DerenderStreamState(BaseModel):
    """What a client carries from one part of an answer to the next."""

    prev_tokens: list[str] = Field(default_factory=list, max_length=1024)
    prefix_offset: _Count = 0
    read_offset: _Count = 0
    role_sent: bool = False
    logprob_context_token_ids: list[int] = Field(default_factory=list, max_length=4)
    logprob_text_offset: _Count = 0
    output_token_ids: list[int] = Field(default_factory=list)
    output_chunk_lens: list[Annotated[int, Field(gt=0)]] = Field(default_factory=list)
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = Field(default_factory=list)


class DerenderChatRequest(BaseModel):
    """Body of ``/v1/chat/completions/derender`` with a whole answer."""

    stream: Literal[False] = False
    model: str | None = None
    generate_response: GenerateTokensResponse
    prompt_tokens: int | None = None
    prompt_token_ids: TokenIdList | None = None
    chat_request: ChatCompletionRequest | None = None


class DerenderCompletionRequest(BaseModel):
    """Body of ``/v1/completions/derender`` with whole answers, to each prompt."""

    stream: Literal[False] = False
    model: str | None = None
    generate_responses: list[GenerateTokensResponse]
    prompt_tokens: list[int] | None = None
    prompt_token_ids: list[TokenIdList | None] | None = None
    completion_request: CompletionRequest | None = None

    @model_validator(mode="after")
    def _one_for_each(self) -> DerenderCompletionRequest:
        wanted = len(self.generate_responses)
        for name in ("prompt_tokens", "prompt_token_ids"):
            given = getattr(self, name)
            if given is not None and len(given) != wanted:
                raise ValueError(
                    f"{name} length ({len(given)}) must equal generate_responses length ({wanted})"
                )
        return self


class _DerenderStream(BaseModel):
    stream: Literal[True]
    model: str | None = None
    generate_chunk: GenerateTokensStreamResponse
    stream_state: DerenderStreamState | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: TokenIdList | None = None


class DerenderChatStreamRequest(_DerenderStream):
    """Body of ``/v1/chat/completions/derender`` with a part of an answer."""

    chat_request: ChatCompletionRequest | None = None


class DerenderCompletionStreamRequest(_DerenderStream):
    """Body of ``/v1/completions/derender`` with a part of an answer."""

    completion_request: CompletionRequest | None = None


DerenderChat: TypeAlias = DerenderChatRequest | DerenderChatStreamRequest
DerenderCompletion: TypeAlias = DerenderCompletionRequest | DerenderCompletionStreamRequest
