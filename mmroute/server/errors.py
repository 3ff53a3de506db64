"""Errors of the server itself; those of the engine's API are in the room of that API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs

from mmroute.errors import did_you_mean, quoted
from mmroute.server.api_errors import ApiError, bad_request
from mmroute.server.front.http import NO_HEADERS, Response, json_response


def error_response(error: ApiError, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """The response to a request that is answered with an error."""
    return json_response(error.body(), error.status, {**error.headers, **headers})


def too_large(what: str, limit: str, headers: Mapping[str, str] = NO_HEADERS) -> ApiError:
    """The error of a body with more of something than a limit of this server allows."""
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "RequestTooLargeError",
        f"The body has more than {what}.",
        headers=headers,
        limit=limit,
    )


def late_body(seconds: float) -> ApiError:
    """The error of a body that did not arrive in time."""
    return ApiError(
        HTTPStatus.REQUEST_TIMEOUT,
        "RequestTimeoutError",
        f"The body did not arrive within {seconds:g} s.",
        headers={"connection": "close"},
        limit="timeout",
    )


def query_parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """The parameters of a query. If a name is repeated, its last value counts.

    An unknown parameter is refused, because a mistyped ``block_sise`` would silently give no block
    hashes.
    """
    values = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    for name in values.keys() - known:
        raise bad_request(
            f"There is no query parameter {quoted(name)}; known here: {', '.join(known)}"
            f"{did_you_mean(name, known)}",
            name,
        )
    return values
