"""The oracle that asks a running vLLM, or another server with its protocol, over HTTP.

``vllm launch render`` has all routes, and needs no GPU. ``vllm serve`` has ``/tokenize``, which
returns no ranges, and the render routes only with ``--enable-scale-out``. Source: vLLM
``entrypoints/serve``, and its answers as observed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mmroute.engines.running import ServedModel, ask_engine, served_models
from mmroute.errors import InexactError
from mmroute.geometry import EmbedRuns
from mmroute.lab.engines import judge_named
from mmroute.lab.parity.cases import Case, Outcome, Range, Served, UndecidedError, merged_runs
from mmroute.lab.parity.oracles.common import (
    OracleError,
    answered,
    given,
    prompt_field,
    refused,
)
from mmroute.lab.parity.oracles.pictures import has_media, with_pictures
from mmroute.net.remote import Remote
from mmroute.net.transport import Reply, Transport
from mmroute.release import PYTHON

_TOKENIZE: Final = "/tokenize"
_RENDER: Final = "/v1/chat/completions/render"
_RENDER_PROMPT: Final = "/v1/completions/render"
_CHAT_FIELDS: Final = (
    "add_special_tokens", "add_generation_prompt", "continue_final_message",
    "chat_template_kwargs", "tools", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
RENDER_FIELDS: Final = ("reasoning_effort", "documents")
"""Fields of chats that vLLM's ``/tokenize`` ignores."""
_OK: Final = 200
_REFUSALS: Final = (400, 422)
# The statuses of a route that does not exist or is switched off.
_ABSENT: Final = (403, 404, 405)
# In such a refusal the server names the option with which it must be started.
_OPTIONS: Final = (
    "--trust-request-mm-kwargs", "--trust-request-chat-template", "--enable-auto-tool-choice",
)  # fmt: skip
_START: Final = "start one with `vllm launch render MODEL`, which needs no GPU"
_MAX_SHOWN: Final = 200


class HttpOracle:
    """Asks a server for the token IDs of a request; nothing is generated."""

    def __init__(
        self,
        url: str,
        *,
        served_model: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Ask a server for its version and model."""
        try:
            remote = Remote(url, api_key, timeout, connect_timeout=timeout)
        except ValueError as error:
            raise OracleError(str(error)) from error
        self._transport = Transport(remote)
        self._renders = True
        self.name = self._transport.name
        try:
            running = ask_engine(self._transport)
            models = served_models(self._transport)
        except InexactError as error:
            raise OracleError(f"{error}; {_START}") from error
        self.version = running.version or "unknown"
        self.model = self._model(models, served_model)
        served = models[self.model]
        self.running = replace(
            running, model_string=served.root, max_model_len=served.max_model_len
        )

    def answer(self, case: Case) -> Outcome:
        request = case.request
        renders_alone = self.running.frontend != PYTHON and not self.running.version
        match prompt_field(request):
            case "messages" if renders_alone and has_media(request["messages"]):
                raise UndecidedError("vllm-rs render takes no media: start it with an engine")
            case "messages" if renders_alone:
                return self._rendered_alone(_RENDER, chat_body(request))
            case "prompt" if renders_alone:
                return self._rendered_alone(_RENDER_PROMPT, prompt_body(request, "prompt"))
            case "messages":
                return self._chat(request)
            case "prompt":
                return self._tokenize(prompt_body(request, "prompt"))
        raise UndecidedError("vLLM's routes hand token IDs back without the engine's checks")

    def generate(self, case: Case) -> Served:
        """Request one token from the engine."""
        judge = judge_named(self.running.engine)
        path, body = judge.generation(case.request, self.model)
        reply = self._post(path, body)
        if reply.status != _OK:
            return Served(self._not_ok(path, reply).refusal)
        with self._reading(path):
            return judge.served(reply.body)

    def _chat(self, request: Mapping[str, Any]) -> Outcome:
        body = chat_body(request) | given(request, *RENDER_FIELDS)
        if not body.get("chat_template_kwargs"):  # a Mistral tokenizer's server refuses even {}
            body.pop("chat_template_kwargs", None)
        rendered_only = [name for name in RENDER_FIELDS if name in body]
        if not has_media(body["messages"]) and not rendered_only:
            return self._tokenize(body)
        if self._renders:
            # A small answer, and no asking for a tool parser.
            chosen = {"tool_choice": "none"} if body.get("tools") else {}
            reply = self._post(_RENDER, {**body, "max_tokens": 1, "mm_payload": "none", **chosen})
            if reply.status not in _ABSENT:
                return self._rendered(reply)
            self._renders = False
        if rendered_only:
            raise UndecidedError(f"{_TOKENIZE} has no {' and no '.join(rendered_only)}")
        return self._tokenize(body, images=True)

    def _rendered_alone(self, path: str, body: dict[str, Any]) -> Outcome:
        """The answer of ``vllm-rs render`` to a text. It has no other routes."""
        reply = self._post(path, {k: v for k, v in body.items() if v not in (None, {})})
        if reply.status != _OK:
            return self._not_ok(path, reply)
        rendered = reply.body[0] if isinstance(reply.body, list) and reply.body else reply.body
        with self._reading(path):
            return answered(token_ids_of(rendered["token_ids"]), ())

    def _rendered(self, reply: Reply) -> Outcome:
        if reply.status != _OK:
            return self._not_ok(_RENDER, reply)
        with self._reading(_RENDER):
            features = reply.body["features"] or {}
            placed: dict[Range, tuple[str | None, EmbedRuns | None]] = {}
            for modality, listed in (features.get("mm_placeholders") or {}).items():
                names = (features.get("mm_hashes") or {}).get(modality) or [None] * len(listed)
                for p, name in zip(listed, names, strict=True):
                    placed[int(p["offset"]), int(p["length"])] = name, _features(p)
            ranges = sorted(placed)
            named = [placed[where][0] for where in ranges]
            identities = None if None in named else tuple(map(str, named))
            runs = [placed[where][1] for where in ranges]
            found = answered(token_ids_of(reply.body["token_ids"]), ranges, runs)
            return replace(found, identities=identities)

    def _tokenize(self, body: dict[str, Any], *, images: bool = False) -> Outcome:
        reply = self._post(_TOKENIZE, body)
        if reply.status != _OK:
            return self._not_ok(_TOKENIZE, reply)
        with self._reading(_TOKENIZE):
            ids, limit = token_ids_of(reply.body["tokens"]), reply.body.get("max_model_len")
            found = answered(ids, None if images else ())
        # This route does not make the engine's later checks.
        if not ids:
            return refused("the prompt is empty")
        if isinstance(limit, int) and len(ids) >= limit:
            return refused(f"{len(ids)} tokens do not fit the context of {limit}")
        return found

    def _not_ok(self, path: str, reply: Reply) -> Outcome:
        message = reply.message
        asks_for = [option for option in _OPTIONS if option in message]
        if asks_for:
            raise UndecidedError(f"the server was not started with {', '.join(asks_for)}")
        if reply.status in _REFUSALS:
            return refused(message)
        hint = f"; {_START}" if reply.status in _ABSENT else ""
        raise UndecidedError(
            f"{self.name}{path} answered with status {reply.status}: {message[:_MAX_SHOWN]}{hint}"
        )

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """A context in which an answer is read, which may be no engine's."""
        try:
            yield
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            what = f"{self.name}{path} answered with something else: {error!r}"
            raise UndecidedError(what) from error

    def _model(self, served: Mapping[str, ServedModel], wanted: str | None) -> str:
        names = [name for name, model in served.items() if model.parent is None]
        if not names:
            raise OracleError(f"{self.name} serves adapters alone: {', '.join(served)}")
        if wanted is None and len(names) > 1:
            raise OracleError(
                f"{self.name} serves {', '.join(names)}; say which of them with --served-model"
            )
        if wanted is not None and wanted not in names:
            raise OracleError(f"{self.name} serves {', '.join(names)}, and not {wanted}")
        return wanted or names[0]

    def _post(self, path: str, body: Mapping[str, Any]) -> Reply:
        try:
            content = json.dumps({"model": self.model, **body}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise UndecidedError(f"the request cannot be written as JSON: {error}") from error
        try:
            return self._transport.request("POST", path, content)
        except InexactError as error:
            raise UndecidedError(str(error)) from error


def chat_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """The body of vLLM's routes for chats."""
    messages = with_pictures(request["messages"], request.get("images"))
    return {"messages": messages, **given(request, *_CHAT_FIELDS)}


def prompt_body(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The body of vLLM's routes for prompts."""
    if request.get("images"):
        raise UndecidedError("vLLM's completion routes take no images")
    return {"prompt": request[name], "add_special_tokens": request.get("add_special_tokens", False)}


def _features(place: Mapping[str, Any]) -> EmbedRuns | None:
    """The positions that receive features; vLLM 0.33 does not say, `mmroute serve` does."""
    told = place.get("is_embed")
    return None if told is None else merged_runs((bool(embed), 1) for embed in told)


def told_by(answer: Any) -> Served:
    """What a generated answer tells of its prompt; completions have its IDs in their choices."""
    holders = (answer, *(answer.get("choices") or ()))
    ids = next(filter(None, (holder.get("prompt_token_ids") for holder in holders)), None)
    usage = answer.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return Served(
        None,
        None if ids is None else np.array(token_ids_of(ids), np.uint32),
        usage.get("prompt_tokens"),
        details.get("cached_tokens"),
    )


def token_ids_of(found: Any) -> list[int]:
    """Token IDs of an answer, which must be integers."""
    if not isinstance(found, list) or any(type(token_id) is not int for token_id in found):
        raise TypeError("token IDs must be a list of integers")
    return found
