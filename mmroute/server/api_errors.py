"""Errors in the one shape that all routes answer with, which is OpenAI's and vLLM's.

Source: vLLM ``entrypoints/serve/exception_handling``, and its answers as observed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Any, Final

from mmroute.errors import InexactError, Reason

REFUSED_BY_ENGINE: Final = frozenset({
    Reason.INVALID_REQUEST, Reason.IMAGE_COUNT_MISMATCH, Reason.IMAGE_REFUSED,
    Reason.ITEM_COUNT_MISMATCH, Reason.ITEM_REFUSED, Reason.ITEM_UNREADABLE,
    Reason.TOO_MANY_ITEMS, Reason.PLACEHOLDER_COUNT_MISMATCH, Reason.CHAT_TEMPLATE_FAILED,
    Reason.TOKEN_OUT_OF_VOCABULARY, Reason.EMPTY_PROMPT, Reason.PROMPT_TOO_LONG,
})  # fmt: skip
"""Reasons by which the engine refuses the request as well: 400. All others are 422, or the
fallback's."""

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


def bad_request(
    message: str, param: str | None = None, *, reason: Reason | None = None
) -> ApiError:
    """The error for a request that is refused; the message ends with the field, as in vLLM."""
    if param is not None:
        message = f"{message} (parameter={param})"
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequestError", message, param=param, reason=reason)


def require(holds: object, message: str, param: str | None = None) -> None:
    """Refuse a request, unless a condition holds."""
    if not holds:
        raise bad_request(message, param)


def invalid_body(message: str, param: str | None = None) -> ApiError:
    """The error for a body that a schema refuses; `param` is ``body`` or ``body.FIELD``."""
    return ApiError(HTTPStatus.BAD_REQUEST, "Bad Request", message, param=param)


def of_reason(reason: Reason, message: str, param: str | None = None) -> ApiError:
    """The error for a request without an exact answer: 400 if the engine refuses it, else 422."""
    if reason in REFUSED_BY_ENGINE or reason in USUALLY_REFUSED:
        return bad_request(message, param, reason=reason)
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "InexactRouting",
        message,
        param=reason.value,
        reason=reason,
    )


def of_inexact(error: InexactError) -> ApiError:
    """The error for a body without an exact answer, whose wrong field the error may name."""
    param = getattr(error, "param", None)
    if isinstance(param, str) and param.partition(".")[0] == "body":
        return invalid_body(str(error), param)
    refused = error.reason is Reason.INVALID_REQUEST
    made = of_reason(error.reason, str(error))
    if refused and param is not None:
        made.param = param
    return made
