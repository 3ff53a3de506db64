"""The OpenAPI document of the server: the fields it reads, and the answers it gives."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

from mmroute.hashing import Algorithm
from mmroute.server.settings import ServerSettings

__all__ = ["openapi"]

_Schema = dict[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_NUMBER: Final[_Schema] = {"type": "number"}
_INTEGER: Final[_Schema] = {"type": "integer"}
_TOKENS: Final[_Schema] = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_OBJECT: Final[_Schema] = {"type": "object"}


def _or_null(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _flag(default: bool) -> _Schema:
    return {"type": "boolean", "default": default}


def _object(required: list[str], properties: dict[str, _Schema]) -> _Schema:
    return {"type": "object", "required": required, "properties": properties}


_MODEL: Final = {"model": _or_null(_TEXT)}
_MESSAGES: Final[_Schema] = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        ["role"],
        {
            "role": _TEXT,
            "content": {
                "anyOf": [_TEXT, {"type": "array", "items": _OBJECT}, {"type": "null"}],
            },
        },
    ),
}
_CHAT: Final[dict[str, _Schema]] = {
    **_MODEL,
    "messages": _MESSAGES,
    "tools": _or_null({"type": "array", "items": _OBJECT}),
    "add_generation_prompt": _flag(default=True),
    "continue_final_message": _flag(default=False),
    "add_special_tokens": _flag(default=False),
    "chat_template_kwargs": _or_null(_OBJECT),
    "mm_processor_kwargs": _or_null(_OBJECT),
}
_WITH_TEXTS: Final = {"return_token_strs": _or_null(_flag(default=False))}
_CARRIED: Final[dict[str, _Schema]] = {
    "mm_payload": {"enum": ["tensors", "none"], "default": "tensors"},
    "output_mode": {"enum": ["tokens", "text", "derender"], "default": "tokens"},
    "cache_salt": _or_null({"type": "string", "minLength": 1, "maxLength": 128}),
    "request_id": _TEXT,
    "priority": _INTEGER,
    "max_tokens": _or_null(_INTEGER),
    "temperature": _or_null(_NUMBER),
    "top_p": _or_null(_NUMBER),
    "stream": _or_null(_flag(default=False)),
}
_SCHEMAS: Final[dict[str, _Schema]] = {
    "TokenizeCompletionRequest": _object(
        ["prompt"],
        {**_MODEL, "prompt": _TEXT, "add_special_tokens": _flag(default=True), **_WITH_TEXTS},
    ),
    "TokenizeChatRequest": _object(["messages"], {**_CHAT, **_WITH_TEXTS}),
    "TokenizeResponse": _object(
        ["count", "max_model_len", "tokens", "token_strs"],
        {
            "count": _INTEGER,
            "max_model_len": _INTEGER,
            "tokens": _TOKENS,
            "token_strs": _or_null({"type": "array", "items": _TEXT}),
        },
    ),
    "DetokenizeRequest": _object(["tokens"], {**_MODEL, "tokens": _TOKENS}),
    "DetokenizeResponse": _object(["prompt"], {"prompt": _TEXT}),
    "ChatRequest": _object(["messages"], {**_CHAT, **_CARRIED}),
    "CompletionRequest": _object(
        ["prompt"],
        {
            **_MODEL,
            "prompt": {
                "anyOf": [
                    _TEXT,
                    {"type": "array", "items": _TEXT},
                    _TOKENS,
                    {"type": "array", "items": _TOKENS},
                ]
            },
            "add_special_tokens": _flag(default=True),
            "truncate_prompt_tokens": _or_null({"type": "integer", "minimum": -1}),
            "return_token_offsets": _or_null(_flag(default=False)),
            **_CARRIED,
        },
    ),
    "Features": _object(
        ["mm_hashes", "mm_placeholders", "kwargs_data", "mm_metadata"],
        {
            "mm_hashes": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": _TEXT},
            },
            "mm_placeholders": {
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": _object(
                        ["offset", "length"],
                        {
                            "offset": _INTEGER,
                            "length": _INTEGER,
                            "is_embed": {
                                "type": "array",
                                "items": {"type": "boolean"},
                                "description": "which positions of the range receive features; "
                                "absent if all do",
                            },
                        },
                    ),
                },
            },
            "kwargs_data": {"type": "null"},
            "mm_metadata": {"type": "null"},
        },
    ),
    "GenerateRequest": _object(
        ["request_id", "token_ids", "features", "sampling_params"],
        {
            "request_id": _TEXT,
            "token_ids": _TOKENS,
            "features": _or_null({"$ref": "#/components/schemas/Features"}),
            "sampling_params": _OBJECT,
            "block_hashes": {"type": "array", "items": _TEXT},
        },
    ),
    "Error": _object(
        ["error"],
        {
            "error": _object(
                ["message", "type", "param", "code"],
                {"message": _TEXT, "type": _TEXT, "param": _or_null(_TEXT), "code": _INTEGER},
            )
        },
    ),
}
_ERRORS: Final = {
    "400": "not a request vLLM would answer",
    "404": "no such model",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "422": "vLLM may answer this request, but there is no exact answer: type InexactRouting, "
    "param is the reason (docs/reasons.md)",
    "500": "internal error",
    "501": "a data URL that is not base64",
    "502": "the fallback failed",
    "503": "a model is being loaded, or a limit was reached",
}
_BLOCKS: Final = [
    {
        "name": "block_size",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1 << 20},
        "description": "answer with block hashes as well: the engine's block size, in tokens",
    },
    {
        "name": "algorithm",
        "in": "query",
        "schema": {"enum": [algorithm.value for algorithm in Algorithm]},
        "description": "the engine's --prefix-caching-hash-algo",
    },
]
_ADMITTED: Final = {"description": "the model, and how far it is"}
_NO_MODEL: Final = {"description": "no such model"}
_ADMIN: Final[dict[str, Any]] = {
    "/admin/models": {
        "get": {
            "summary": "Every model, and how far it is",
            "responses": {"200": {"description": "data: the models"}},
        },
        "post": {
            "summary": "Add a model",
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": _object(
                            ["model"],
                            {
                                "model": _TEXT,
                                "names": {"type": "array", "items": _TEXT, "minItems": 1},
                                "model_id": _or_null(_TEXT),
                                "revision": _or_null(_TEXT),
                                "backend": _TEXT,
                            },
                        )
                    }
                },
            },
            "responses": {
                "200": _ADMITTED,
                "202": {"description": "it is being loaded"},
                "400": {"description": "a field is wrong"},
                "409": {"description": "another model has one of the names"},
            },
        },
    },
    "/admin/models/{name}": {
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": _TEXT}],
        "get": {"summary": "How far it is", "responses": {"200": _ADMITTED, "404": _NO_MODEL}},
        "delete": {"summary": "Remove it", "responses": {"200": _ADMITTED, "404": _NO_MODEL}},
    },
}


def openapi(settings: ServerSettings) -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {
        "/tokenize": _post(
            "Token IDs of a text or a chat",
            {"anyOf": [_ref("TokenizeCompletionRequest"), _ref("TokenizeChatRequest")]},
            _ref("TokenizeResponse"),
        ),
        "/detokenize": _post(
            "The text of token IDs", _ref("DetokenizeRequest"), _ref("DetokenizeResponse")
        ),
        "/v1/chat/completions/render": _post(
            "The prompt of a chat", _ref("ChatRequest"), _ref("GenerateRequest"), blocks=True
        ),
        "/v1/completions/render": _post(
            "The prompts of a completion",
            _ref("CompletionRequest"),
            {"type": "array", "items": _ref("GenerateRequest")},
            blocks=True,
        ),
        "/v1/models": _get("Every served name"),
        "/version": _get("The version of vLLM that is matched, and of mmroute"),
        "/health": {
            "get": {
                "summary": "Whether every model is loaded and checked",
                "responses": {"200": {"description": "yes"}, "503": {"description": "not yet"}},
            }
        },
        "/metrics": _get("Prometheus metrics", "text/plain"),
        "/openapi.json": _get("This document"),
    }
    if settings.tokenizer_info:
        paths["/tokenizer_info"] = _get("The tokenizer's configuration")
    if settings.admin_key is not None:
        paths |= _ADMIN
    components: dict[str, Any] = {"schemas": _SCHEMAS}
    guarded = {"/v1": settings.api_keys, "/admin": settings.admin_key}
    for beginning in (beginning for beginning, keys in guarded.items() if keys):
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for operation in (
            operation
            for path, item in paths.items()
            if path.startswith(beginning)
            for name, operation in item.items()
            if name != "parameters"
        ):
            operation["security"] = [{"key": []}]
            operation["responses"]["401"] = {"description": "no API key, or another one"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mmroute",
            "version": importlib.metadata.version("mmroute"),
            "description": "vLLM's tokenize and render endpoints, answered without pixels",
        },
        "paths": paths,
        "components": components,
    }


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: _Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _post(
    summary: str, request: _Schema, answer: _Schema, *, blocks: bool = False
) -> dict[str, Any]:
    errors = {
        status: {"description": text, "content": _json(_ref("Error"))}
        for status, text in _ERRORS.items()
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {"200": {"description": "exact", "content": _json(answer)}, **errors},
    }
    if blocks:
        operation["parameters"] = _BLOCKS
    return {"post": operation}


def _get(summary: str, media_type: str = "application/json") -> dict[str, Any]:
    answer = {"description": "", "content": {media_type: {"schema": {}}}}
    return {"get": {"summary": summary, "responses": {"200": answer}}}
