"""Completions: ``/v1/completions/render``.

Source: vLLM ``entrypoints/openai/completion/protocol.py``,
``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Field

from mmroute.answering.routing import Routing
from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.cost import Cost, cost_of_prompts
from mmroute.api.vllm.errors import bad_request, of_reason
from mmroute.api.vllm.fields import (
    GenerationRequest,
    RequestedOutput,
    TokenIdList,
)
from mmroute.api.vllm.rendering import exact, rendered, request_id_of, route_ids
from mmroute.api.vllm.request_checks import before_fields, check_completion
from mmroute.api.vllm.sampling import check_output_budget
from mmroute.api.vllm.truncation import truncated_ids, truncated_text
from mmroute.engines.frontends import Frontend
from mmroute.errors import Reason, quoted
from mmroute.requests.request import Request, lora_of
from mmroute.token_ids import MAX_TOKEN_ID

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
    n: int = 1
    suffix: str | None = None
    prompt_embeds: bytes | Annotated[list[bytes], Field(fail_fast=True)] | None = None
    add_special_tokens: bool = True

    _check_first = before_fields(check_completion)

    def requested_output(self) -> RequestedOutput:
        return RequestedOutput(
            self.n,
            self.max_tokens,
            logprobs=self.logprobs,
            only_echo=bool(self.echo) and self.max_tokens == 0,
        )

    @property
    def prompt_scores(self) -> int | None:
        if self.prompt_logprobs is None and self.echo:
            return self.logprobs
        return self.prompt_logprobs

    def cost(self, size: int) -> Cost:
        return cost_of_prompts(size, self.prompt)

    def to_request(self, prompt: Prompt, loras: Mapping[str, str]) -> Request:
        """The request for a normalizer.

        Args:
            prompt: one of `prompts`.
            loras: the path of each LoRA adapter, by its name.
        """
        request = Request(
            model=self.model,
            add_special_tokens=self.add_special_tokens,
            cache_salt=self.cache_salt,
            reads_cache=self.reads_cache,
            lora=lora_of(loras, self.model),
        )
        if isinstance(prompt, str):
            return request._replace(prompt=prompt)
        return request._replace(prompt_token_ids=prompt)

    def prompts(self) -> list[Prompt]:
        """The prompts of the body.

        Raises:
            ApiError: 400: there is no prompt, or vLLM does not render this kind.
        """
        if self.suffix is not None:
            raise bad_request(
                "suffix is only supported for models with FIM completion rendering", "suffix"
            )
        if self.prompt_embeds not in (None, []):
            raise bad_request(
                "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds"
            )
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if not given:
            raise bad_request("You must pass at least one prompt", "prompt")
        return [given] if isinstance(given[0], int) else given  # type: ignore[return-value]  # all of one kind

    def answer(self, call: Call) -> Reply:
        model = call.model
        if self.use_beam_search:
            raise bad_request("Beam search is not supported by the render endpoint")
        check_output_budget(self.max_tokens, "max_tokens", model.max_model_len)
        prompts = self.prompts()
        base = request_id_of("cmpl", self, call)
        routings, answers = [], []
        for number, prompt in enumerate(prompts):
            routing = self._routing(prompt, call)
            request_id = base if len(prompts) == 1 else f"{base}-{number}"
            answer = rendered(self, routing, call, request_id)
            if self.return_token_offsets and isinstance(prompt, str) and not call.tokens_only:
                answer["token_offsets"] = model.model.tokenizer.offsets(
                    prompt, add_special_tokens=self.add_special_tokens
                )
            answers.append(answer)
            routings.append(routing)
        return Reply(answers, routings)

    def _routing(self, prompt: Prompt, call: Call) -> Routing:
        """The routing of a prompt. The token IDs of a client are returned unchanged, as by vLLM.

        The Python frontend's render route accepts IDs outside the vocabulary, and the engine
        refuses them. They never have block hashes. The Rust frontend refuses them itself.
        """
        model = call.model
        if isinstance(prompt, str):
            limited = self.truncate_prompt_tokens is None
            normalizer = model.normalizer if limited else model.unlimited
            routing = normalizer.answer(self.to_request(prompt, model.loras))
            routing = exact(routing, call.options)
            return truncated_text(self, routing, model, special_tokens=self.add_special_tokens)
        ids = truncated_ids(self, prompt, model.max_model_len)
        if not ids:
            raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered")
        if call.blocks is not None or model.model.engine.frontend is Frontend.RUST:
            routing = model.normalizer.answer(self.to_request(ids, model.loras))
            return exact(routing, call.options)
        if max(ids) > MAX_TOKEN_ID:
            message = f"{quoted(max(ids))} is no token ID of any model"
            raise of_reason(Reason.TOKEN_OUT_OF_VOCABULARY, message)
        return route_ids(model, self, ids)
