"""Errors in the words and the one shape of vLLM's server.

Source: vLLM ``entrypoints/serve/exception_handling``, and its answers as observed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Any, Final

from mmroute.errors import Reason

REFUSED_BY_ENGINE: Final = frozenset({
    Reason.INVALID_REQUEST, Reason.IMAGE_COUNT_MISMATCH, Reason.IMAGE_REFUSED,
    Reason.ITEM_COUNT_MISMATCH, Reason.ITEM_REFUSED, Reason.ITEM_UNREADABLE,
    Reason.TOO_MANY_ITEMS, Reason.PLACEHOLDER_COUNT_MISMATCH, Reason.CHAT_TEMPLATE_FAILED,
    Reason.TOKEN_OUT_OF_VOCABULARY, Reason.EMPTY_PROMPT, Reason.PROMPT_TOO_LONG,
})  # fmt: skip
"""Reasons by which vLLM refuses the request as well: 400. All others are 422, or the fallback's."""

USUALLY_REFUSED: Final = frozenset({Reason.IMAGE_UNREADABLE, Reason.CHAT_TEMPLATE_MISSING})
"""Those by which it does so with few exceptions (formats that are rare, files that are damaged a
little; a template given with ``--chat-template``): 400, but a fallback is asked."""

# As in vLLM, no error tells a client of this machine's memory and files.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+>")
_PATH: Final = re.compile(r"/(?:home|usr|opt|var|tmp|root|lib|mnt|srv)(?:/[\w.\-]+)+")


@dataclass(eq=False)
class ApiError(Exception):
    """A request is answered with an error.

    Attributes:
        status: the HTTP status of the response.
        kind: vLLM's name for the error, which is `type` in the body.
        message: the text for people.
        param: the field with the error, or the reason; None for neither.
        reason: the reason why the request has no exact answer; None for any other error.
        model: the name of the model; None if it is not known.
        headers: further headers of the response.
        limit: the server's limit that was reached; None if none was.
    """

    status: int
    kind: str
    message: str
    _: KW_ONLY
    param: str | None = None
    reason: Reason | None = None
    model: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: str | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """The body, in vLLM's key order."""
        message = _PATH.sub("<path>", _ADDRESS.sub(">", self.message)).strip()
        return {
            "error": {
                "message": message,
                "type": self.kind,
                "param": self.param,
                "code": self.status,
            }
        }


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


def bad_request(
    message: str,
    param: str | None = None,
    value: object = None,
    *,
    reason: Reason | None = None,
) -> ApiError:
    """The error for a request that vLLM's own code refuses.

    The message ends with the field and its value, as in vLLM.

    Args:
        message: the text for people.
        param: the field with the error; None if there is none.
        value: the field's value, if vLLM shows it. Only numbers are shown here.
        reason: the reason why there is no exact answer; None if there is none.
    """
    if param is not None:
        said = f", value={value}" if isinstance(value, int | float) else ""
        message = f"{message} (parameter={param}{said})"
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequestError", message, param=param, reason=reason)


def require(holds: object, message: str, param: str | None = None, value: object = None) -> None:
    """Refuse a request as vLLM's own code does, unless a condition holds.

    Raises:
        ApiError: 400.
    """
    if not holds:
        raise bad_request(message, param, value)


def invalid_body(message: str, param: str | None = None) -> ApiError:
    """The error for a body that vLLM's schema refuses. Its type is spelt in another way.

    Args:
        message: the text for people.
        param: ``body`` or ``body.FIELD``; None for neither.
    """
    return ApiError(HTTPStatus.BAD_REQUEST, "Bad Request", message, param=param)


def invalid_request(message: str, param: str) -> ApiError:
    """The error for a request that vLLM's Responses API refuses, of OpenAI's own type."""
    return ApiError(HTTPStatus.BAD_REQUEST, "invalid_request_error", message, param=param)


def of_reason(reason: Reason, message: str) -> ApiError:
    """The error for a request without an exact answer: 400 if vLLM refuses it too, else 422."""
    if reason in REFUSED_BY_ENGINE or reason in USUALLY_REFUSED:
        return bad_request(message, _param(reason, message), reason=reason)
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "InexactRouting",
        message,
        param=reason.value,
        reason=reason,
    )


def unsupported_field(message: str) -> ApiError:
    """The error for a request that asks for something that is not covered."""
    return of_reason(Reason.UNSUPPORTED_FIELD, message)


def _param(reason: Reason, message: str) -> str | None:
    """The field that vLLM names. A text with too many characters is not encoded."""
    if message.startswith("reasoning_effort"):
        return "reasoning_effort"
    if reason is not Reason.PROMPT_TOO_LONG:
        return None
    return "input_text" if "characters" in message else "input_tokens"
