"""The schema of the bodies of vLLM's routes, in each release and behind each frontend.

Source: vLLM ``rust/src/server/src/routes/openai/chat_completions/types.rs`` and ``validate.rs``,
the same of ``completions``; the request schemas in the wheels of 0.13.0 to 0.33.0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import Field, Strict, StrictBool, StrictStr, create_model

from mmroute.engine import DEFAULT, find_engine
from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.completion import CompletionRequest
from mmroute.engines.vllm.bodies.errors import unsupported_field
from mmroute.engines.vllm.bodies.fields import MAX_INT64
from mmroute.engines.vllm.bodies.validation import Schema
from mmroute.errors import ModelError, Reason
from mmroute.requests.request import Request

_Id: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=2**32 - 1)]
_SHARED: Final[Mapping[str, Any]] = {
    "truncate_prompt_tokens": Annotated[int, Strict(), Field(ge=-1, le=MAX_INT64)] | None,
    "add_special_tokens": StrictBool,
}
RUST_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/chat/completions/render": {
        **_SHARED,
        "add_generation_prompt": StrictBool | None,
        "continue_final_message": StrictBool,
        "documents": list[Any] | None,
    },
    "/v1/completions/render": {
        **_SHARED,
        "prompt": StrictStr | Annotated[list[_Id], Field(fail_fast=True)],
        "suffix": None,
        "prompt_embeds": None,
    },
}
"""Path -> field -> its type."""


Release: TypeAlias = tuple[int, int]
"""The first two numbers of a release: within these, no field changed."""

_OTHERWISE: Final[Mapping[str, Mapping[Release, Mapping[str, Any]]]] = {
    "/v1/chat/completions/render": {
        (0, 21): {"reasoning_effort": (Literal["none", "low", "medium", "high"] | None, None)},
        (0, 18): {"reasoning_effort": (Literal["low", "medium", "high"] | None, None)},
    },
}
"""Path -> release, the newest first -> fields that are of another type before it, with defaults."""


def differences(
    path: str, release: Release
) -> tuple[frozenset[str], frozenset[str], dict[str, Any]]:
    """The differences between the requests of a route in a release and in the newest one."""
    unknown, refused = set[str](), set[str]()
    for name, (first, *end) in _known().get(path, {}).items():
        if end and first <= release < end[0]:
            refused.add(name)
        elif release < first:
            unknown.add(name)
    changed: dict[str, Any] = {}
    for before, fields in _OTHERWISE.get(path, {}).items():
        if release < before:
            changed |= fields
    return frozenset(unknown), frozenset(refused), changed


@cache
def release_of(backend: str) -> Release:
    """The release that a backend such as ``vllm==0.28`` names."""
    engine = find_engine(backend).release
    if engine.name != DEFAULT:
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"The bodies of {engine.name}'s API are not covered. Give the fields that change its "
            "prompts to `Normalizer.normalize`.",
        )
    return _release(engine.version)


@cache
def _known() -> Mapping[str, Mapping[str, list[Release]]]:
    """Path -> field -> the first release that knows it, and the first that does not any more."""
    file = resources.files("mmroute.engines.vllm.bodies") / "request_fields.toml"
    return {
        path: {name: [_release(bound) for bound in bounds] for name, bounds in fields.items()}
        for path, fields in tomllib.loads(file.read_text()).items()
    }


def _release(version: str) -> Release:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


_BODIES: Final[Mapping[str, Any]] = {
    "/v1/chat/completions/render": ChatCompletionRequest,
    "/v1/completions/render": CompletionRequest,
}
"""Path of vLLM's route -> the class of its bodies; a server has those of more routes."""

_CHECKS_SALTS: Final = (0, 33)


@cache
def schema_of(path: str, release: Release, strict: bool = False, kind: Any = None) -> Schema[Any]:
    """The schema for the bodies of a route; `strict` is of the Rust frontend."""
    kind = kind or _BODIES[path]
    unknown, refused, changed = differences(path, release)
    lenient = frozenset[str]()
    if strict:
        # An empty text may have a token; earlier releases look at no character of a salt.
        lenient = frozenset({"prompt"} if release >= _CHECKS_SALTS else {"prompt", "cache_salt"})
        for name, given in RUST_FIELDS.get(path, {}).items():
            changed[name] = (given, kind.model_fields[name].default)
    if changed:
        kind = create_model(kind.__name__, __base__=kind, **changed)
    return Schema(kind, unknown, refused, lenient)


_COMPLETION: Final = frozenset({"prompt", "prompt_embeds"})


def parse_body(body: Mapping[str, Any], backend: str) -> Request:
    """See `mmroute.engine.Chats.read_body`, for the fields that a release knows."""
    found = read(body, backend)
    if isinstance(found, ChatCompletionRequest):
        return _of_chat(found)
    prompts = found.prompts()
    if len(prompts) > 1:
        raise unsupported_field(
            f"prompt: there are {len(prompts)}, and a request has one; parse a body for each",
        )
    request = found.to_request(prompts[0])
    return request._replace(truncate_prompt_tokens=found.truncate_prompt_tokens)


def read(body: Mapping[str, Any], backend: str) -> ChatCompletionRequest | CompletionRequest:
    """Check the fields of a body of ``/v1/chat/completions`` or ``/v1/completions``."""
    given = body if isinstance(body, Mapping) else {}
    is_completion = "messages" not in given and not _COMPLETION.isdisjoint(given)
    path = "/v1/completions/render" if is_completion else "/v1/chat/completions/render"
    request = schema_of(path, release_of(backend)).request(_copied(body))
    return cast("ChatCompletionRequest | CompletionRequest", request)


def _copied(body: object) -> object:
    return {**body} if isinstance(body, Mapping) else body


def _of_chat(chat: ChatCompletionRequest) -> Request:
    if not chat.echo and (chat.kv_transfer_params or {}).get("prompt_token_ids") is not None:
        raise unsupported_field(
            "kv_transfer_params.prompt_token_ids: the engine may take them in place of the "
            "messages; give them as prompt_token_ids",
        )
    return chat.to_request()._replace(truncate_prompt_tokens=chat.truncate_prompt_tokens)
