"""Requests of the OpenAI Responses API: ``/v1/responses/render``, ``/v1/responses/input_tokens``.

Source: vLLM ``entrypoints/openai/responses/protocol.py`` (`ResponsesRequest`,
`build_chat_params`, `build_tok_params`, `to_sampling_params`), and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.errors import refused
from mmroute.engines.vllm.bodies.fields import (
    Effort,
    ExtraArgs,
    Integers,
    MmPayload,
    Stop,
    StructuredOutputsParams,
    TopLogprobs,
)
from mmroute.engines.vllm.bodies.request_checks import before_fields, check_responses
from mmroute.server.engines.vllm.bodies.responses_items import Item, Tool


class Reasoning(BaseModel):
    """The options for the model's reasoning."""

    effort: Effort | None = None


class ResponsesRequest(BaseModel, defer_build=True):
    """Body of ``/v1/responses/render``: the fields that change its answer."""

    include: list[str] | None = None
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str | None = None
    logit_bias: dict[str, float] | None = None
    previous_response_id: str | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = False
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[Tool] = Field(default_factory=list)
    top_logprobs: TopLogprobs = 0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    watermarking: bool | None = None
    request_id: str = ""
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    priority: int = 0
    mm_payload: MmPayload = "tensors"
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    previous_input_messages: list[dict[str, Any]] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: Stop = None
    stop_token_ids: Integers | None = None
    ignore_eos: bool = False
    vllm_xargs: ExtraArgs = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    _check_first = before_fields(check_responses)

    def options(self) -> ChatCompletionRequest:
        """The chat without messages and tools: the fields that both have, and a few others."""
        if self.previous_response_id is not None:
            raise refused(
                "previous_response_id is not supported by the stateless render endpoint.",
                "previous_response_id",
            )
        given, reasoning = self.input, self.reasoning
        last: Mapping[str, Any] = given[-1] if given and not isinstance(given, str) else {}
        of_model = last.get("type", "message") in ("message", "reasoning")
        unfinished = of_model and last.get("status") in ("in_progress", "incomplete")
        shared = {name: getattr(self, name) for name in _SHARED}
        return ChatCompletionRequest.model_construct(**shared | {
            "messages": [],
            "tools": None,
            "max_completion_tokens": self.max_output_tokens,
            "truncate_prompt_tokens": None if self.truncation == "disabled" else -1,
            "logprobs": "message.output_text.logprobs" in (self.include or ()),
            "reasoning_effort": None if reasoning is None else reasoning.effort,
            "structured_outputs": self._structured_outputs(),
            "add_generation_prompt": not unfinished,
            "continue_final_message": unfinished,
            "add_special_tokens": True,
            "stop": self.stop or None,
            "vllm_xargs": self.vllm_xargs or {},
        })  # fmt: skip

    def _structured_outputs(self) -> StructuredOutputsParams | None:
        wanted = (self.text or {}).get("format")
        match wanted if isinstance(wanted, dict) else {}:
            case {"type": "json_object"}:
                return StructuredOutputsParams(json_object=True)
            case {"type": "json_schema", "schema": dict(schema)}:
                return StructuredOutputsParams(json=schema)
        return self.structured_outputs


_SHARED: Final = ChatCompletionRequest.model_fields.keys() & ResponsesRequest.model_fields.keys()
