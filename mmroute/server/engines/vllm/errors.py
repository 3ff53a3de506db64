"""Errors of vLLM's frontends."""

from __future__ import annotations

from http import HTTPStatus

from mmroute.server.api_errors import ApiError


def not_served(api: str) -> ApiError:
    """The error for a request of an API that vLLM's Rust frontend does not have.

    Source: vLLM ``rust/src/server/src/routes.rs`` (`not_supported`).
    """
    return ApiError(
        HTTPStatus.NOT_IMPLEMENTED,
        "NotImplementedError",
        f"{api} is not supported by vLLM's Rust frontend; send a chat to /v1/chat/completions, or "
        "start the engine with VLLM_USE_RUST_FRONTEND=0",
    )
