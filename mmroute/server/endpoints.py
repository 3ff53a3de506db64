"""From an HTTP request to its response: the body, its handler, the fallback."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mmroute.errors import shown
from mmroute.hashing import Algorithm, none_hash
from mmroute.server.answers import BlockForm
from mmroute.server.bodies import parse_body, validated
from mmroute.server.capacity import Capacity, Reservation, read_body
from mmroute.server.cost import Cost, check_body, cost_of
from mmroute.server.errors import USUALLY_REFUSED, ApiError, bad_request
from mmroute.server.fallback import Fallback
from mmroute.server.handling import HandlerContext, HandlerResult
from mmroute.server.logs import LogEntry
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings
from mmroute.stages import Stage

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

__all__ = ["LOG_ENTRY", "Endpoints", "Handler", "error_response", "json_response"]

_LOG: Final = logging.getLogger(__name__)
_INEXACT: Final = "InexactRouting"
_MAX_BLOCK: Final = 1 << 20
_SERVER_ERROR: Final = 500
_SMALL_BLOCK: Final = 16
_ID_DIGITS: Final = 16  # of those in an answer, as in vLLM's
_CLIENT_HAS_GONE: Final = 499  # as proxies write it; nobody reads it
LOG_ENTRY: Final = "mmroute.log_entry"
"""The key of a request's `LogEntry` in its scope."""

Handler: TypeAlias = Callable[[R, HandlerContext], HandlerResult]
"""What a route does with a request. It runs in the event loop, or in a thread."""
Timings: TypeAlias = Mapping[Stage, int]
"""The nanoseconds that each stage of a request took."""

_encode: Final = msgspec.json.Encoder().encode


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON response."""
    try:
        raw = _encode(value)
    except (UnicodeEncodeError, ValueError, TypeError):  # a lone surrogate, NaN, a huge integer
        raw = json.dumps(value).encode()
    return Response(raw, status, headers, media_type="application/json")


def error_response(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """The response to a request that is answered with an error."""
    return json_response(error.body(), error.status, {**error.headers, **(headers or {})})


class Endpoints:
    """Answers the routes that have a body.

    Args:
        models: that answer.
        settings: of the server.
        metrics: told of every answer.
        capacity: how much goes on at a time.
        fallback: asked where there is no exact answer; None for nobody.
    """

    def __init__(
        self,
        models: Models,
        settings: ServerSettings,
        metrics: Metrics,
        capacity: Capacity,
        fallback: Fallback | None,
    ) -> None:
        self._models = models
        self._settings = settings
        self._metrics = metrics
        self._capacity = capacity
        self._fallback = fallback
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="mmroute-work")
        self._link_pool = ThreadPoolExecutor(
            settings.link_workers, thread_name_prefix="mmroute-links"
        )

    def of(self, kind: TypeAdapter[R], handler: Handler[R]) -> Callable[[Request], Any]:
        """The endpoint of a route.

        Args:
            kind: of its requests.
            handler: answers one.
        """

        async def endpoint(request: Request) -> Response:
            return await self._respond(kind, handler, request)

        return endpoint

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._pool, self._link_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _respond(
        self, kind: TypeAdapter[R], handler: Handler[R], request: Request
    ) -> Response:
        entry: LogEntry = request.scope[LOG_ENTRY]
        reservation = self._capacity.reserve()
        raw: bytes | None = None
        try:
            _check_content_type(request)
            async with asyncio.timeout(self._settings.request_timeout):
                raw = await read_body(request, reservation)
                entry.bytes = len(raw)
                reservation.enter()
                context = self._context(request)
                parsed, cost = await self._parsed(kind, raw, reservation)
                run = functools.partial(_handle, handler, parsed, context)
                result, timings = await self._run(run, cost, context, reservation)
            self._count(entry, result, timings)
            return json_response(result.body, result.status, _headers_of(result, entry))
        except TimeoutError:
            return await self._without_answer(self._late(raw), request, raw, entry)
        except ApiError as error:
            return await self._without_answer(error, request, raw, entry)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_HAS_GONE)
        except Exception:  # noqa: BLE001 - one request must not end the others
            _LOG.exception("failed", extra={"fields": {"request_id": entry.request_id}})
            message = "Internal error; the log has the request ID and the place."
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return error_response(ApiError(status, "InternalServerError", message))
        finally:
            reservation.close()

    def _context(self, request: Request) -> HandlerContext:
        return HandlerContext(
            self._models,
            self._settings,
            request_id=request.headers.get("x-request-id"),
            own_id=request.scope[LOG_ENTRY].request_id[:_ID_DIGITS],
            blocks=_block_form(request, self._settings.hash_seed),
        )

    async def _parsed(
        self, kind: TypeAdapter[R], raw: bytes, reservation: Reservation
    ) -> tuple[R, Cost]:
        is_long = check_body(raw, self._settings)
        parse = functools.partial(_parse, kind, raw, self._settings)
        return await self._in(self._pool, parse, reservation) if is_long else parse()

    async def _run(
        self,
        run: Callable[[], tuple[HandlerResult, Timings]],
        cost: Cost,
        context: HandlerContext,
        reservation: Reservation,
    ) -> tuple[HandlerResult, Timings]:
        """In place if it is little, for a thread costs more than that; else in a thread."""
        if cost.links and self._settings.links is not None:
            reservation.follow_links()
            return await self._in(self._link_pool, run, reservation)
        size = context.blocks.block_size if context.blocks else None
        hashes_much = size is not None and size < _SMALL_BLOCK
        if hashes_much or cost.characters > self._settings.worker_bytes:
            return await self._in(self._pool, run, reservation)
        return run()

    async def _in(
        self, pool: ThreadPoolExecutor, run: Callable[[], T], reservation: Reservation
    ) -> T:
        future = pool.submit(run)
        reservation.runs(future)
        return await asyncio.wrap_future(future)

    def _count(self, entry: LogEntry, result: HandlerResult, timings: Timings) -> None:
        entry.model, entry.outcome = result.model, "exact"
        if result.inexact is None:
            self._metrics.answered(result, timings)
        else:
            entry.outcome, entry.reason = "text_prefix", result.inexact.value
            self._metrics.inexact(result.model, entry.outcome, entry.reason)
        entry.tokens, entry.images = result.tokens, result.images

    async def _without_answer(
        self, error: ApiError, request: Request, raw: bytes | None, entry: LogEntry
    ) -> Response:
        if error.limit is not None:
            self._metrics.rejected(error.limit)
        if error.reason is None:  # by its form alone, or by a limit
            entry.outcome = "refused" if error.status < _SERVER_ERROR else "unavailable"
            entry.reason, entry.param = error.kind.replace(" ", ""), error.param
            self._metrics.inexact(error.model, entry.outcome, entry.reason)
            return error_response(error)
        reason, entry.model, entry.reason = error.reason, error.model, error.reason.value
        entry.outcome = "inexact" if error.kind == _INEXACT else "refused"
        may_be_answered = error.kind == _INEXACT or reason in USUALLY_REFUSED
        if not may_be_answered or self._fallback is None or raw is None:
            self._metrics.inexact(error.model, entry.outcome, reason.value)
            said = {"x-mmroute-outcome": entry.outcome, "x-mmroute-reason": reason.value}
            return error_response(error, said)
        entry.outcome = "fallback"
        self._metrics.inexact(error.model, entry.outcome, reason.value)
        said = {"x-mmroute-fallback": reason.value}
        # Not from `request.url`, which begins with whatever the client calls the host.
        query = request.scope["query_string"].decode("latin-1")
        path = request.scope["path"] + (f"?{query}" if query else "")
        try:
            request_id = request.headers.get("x-request-id")
            upstream = await self._fallback.ask(path, raw, request_id, reason)
        except ApiError as failed:
            self._metrics.fallback(reason.value, "failed")
            fields = {
                "request_id": entry.request_id,
                "url": self._fallback.url,
                "text": failed.message,
            }
            _LOG.warning("fallback failed", extra={"fields": fields})
            return error_response(failed, said)
        self._metrics.fallback(reason.value, str(upstream.status))
        return Response(upstream.body, upstream.status, {**upstream.headers, **said})

    def _late(self, raw: bytes | None) -> ApiError:
        if raw is None:
            return ApiError(
                HTTPStatus.REQUEST_TIMEOUT,
                "RequestTimeoutError",
                f"The body did not arrive within {self._settings.request_timeout:g} s.",
                headers={"connection": "close"},
                limit="timeout",
            )
        return self._capacity.busy("timeout", {})


def _headers_of(result: HandlerResult, entry: LogEntry) -> dict[str, str]:
    headers = {**result.headers, "x-mmroute-outcome": entry.outcome or ""}
    if result.inexact is not None:
        headers["x-mmroute-reason"] = result.inexact.value
    return headers


def _parse(kind: TypeAdapter[R], raw: bytes, settings: ServerSettings) -> tuple[R, Cost]:
    request = validated(kind, parse_body(raw))
    return request, cost_of(request, settings)


def _handle(
    handler: Handler[R], request: R, context: HandlerContext
) -> tuple[HandlerResult, Timings]:
    watch = context.models.watch
    watch.start()
    result = handler(request, context)
    return result, watch.spent()


def _check_content_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").lower().split(";", 1)[0]
    if media_type != "application/json":
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.BAD_REQUEST.phrase,
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
        )


def _block_form(request: Request, seed: str | None) -> BlockForm | None:
    """Which block hashes the query asks for: ``?block_size=16&algorithm=sha256``."""
    query = request.query_params
    if not {"block_size", "algorithm", "hashes"} & query.keys():
        return None
    size, algorithm = query.get("block_size"), query.get("algorithm")
    if size is not None and not _is_block_size(size):
        raise bad_request(
            f"block_size must be a positive integer, found {shown(size)}", "block_size"
        )
    known = [known.value for known in Algorithm]
    hashes = query.get("hashes", "hex")
    if hashes not in ("hex", "int"):
        raise bad_request(f"hashes must be hex or int, found {shown(hashes)}", "hashes")
    if algorithm is None:
        return BlockForm(None, None if size is None else int(size), seed, hashes == "int")
    if algorithm not in known:
        raise bad_request(
            f"algorithm must be one of {', '.join(known)}, found {shown(algorithm)}", "algorithm"
        )
    try:
        none_hash(algorithm, seed)
    except ValueError as error:
        raise bad_request(f"{error} (mmroute serve --hash-seed)", "algorithm") from None
    return BlockForm(algorithm, None if size is None else int(size), seed, hashes == "int")


def _is_block_size(text: str) -> bool:
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_BLOCK))
    return digits and 1 <= int(text) <= _MAX_BLOCK
