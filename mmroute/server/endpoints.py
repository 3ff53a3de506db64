"""From an HTTP request to its answer: the body, the work, the fallback."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mmroute.errors import shown
from mmroute.hashing import Algorithm, none_hash
from mmroute.server.admission import Admission, Ticket, read_body
from mmroute.server.answers import BlockForm
from mmroute.server.errors import USUALLY_REFUSED, ApiError, bad_request
from mmroute.server.fallback import Fallback
from mmroute.server.fields import Body, parse_body
from mmroute.server.logs import Record
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings
from mmroute.server.work import Answer, Work
from mmroute.stages import Stage

__all__ = ["RECORD", "Endpoints", "Handler", "error_response", "json_response"]

_LOG: Final = logging.getLogger(__name__)
_INEXACT: Final = "InexactRouting"
_MAX_BLOCK: Final = 1 << 20
_SERVER_ERROR: Final = 500
_SMALL_BLOCK: Final = 16
_DATA: Final = b";base64,"
_DATA_URL: Final = b'"data:'
_LONGEST_TYPE: Final = 128
_PICTURES_WEIGH: Final = 64
_ID_DIGITS: Final = 16  # of those in an answer, as in vLLM's
_CLIENT_HAS_GONE: Final = 499  # as proxies write it; nobody reads it
RECORD: Final = "mmroute.record"
"""The key of a request's `Record` in its scope."""

Handler: TypeAlias = Callable[[Body, Work], Answer]
"""What a route does with a body. It runs in the event loop, or in a thread."""
Done: TypeAlias = tuple[Answer, Mapping[Stage, int]]
"""What it found, and the nanoseconds that each stage took."""

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
        admission: how much goes on at a time.
        fallback: asked where there is no exact answer; None for nobody.
    """

    def __init__(
        self,
        models: Models,
        settings: ServerSettings,
        metrics: Metrics,
        admission: Admission,
        fallback: Fallback | None,
    ) -> None:
        self._models = models
        self._settings = settings
        self._metrics = metrics
        self._admission = admission
        self._fallback = fallback
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="mmroute-work")

    def of(self, handler: Handler) -> Callable[[Request], Any]:
        """The endpoint of a route."""

        async def endpoint(request: Request) -> Response:
            return await self._respond(handler, request)

        return endpoint

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _respond(self, handler: Handler, request: Request) -> Response:
        record: Record = request.scope[RECORD]
        ticket = self._admission.ticket()
        raw: bytes | None = None
        try:
            _check_content_type(request)
            async with asyncio.timeout(self._settings.request_timeout):
                raw = await read_body(request, ticket)
                record.bytes = len(raw)
                ticket.enter()
                answer, stages = await self._work(handler, raw, self._of(request), ticket)
            self._count(record, answer, stages)
            return json_response(answer.body, answer.status, _said_of(answer, record))
        except TimeoutError:
            return await self._without_answer(self._late(raw), request, raw, record)
        except ApiError as error:
            return await self._without_answer(error, request, raw, record)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_HAS_GONE)
        except Exception:  # noqa: BLE001 - one request must not end the others
            _LOG.exception("failed", extra={"fields": {"request_id": record.request_id}})
            message = "Internal error; the log has the request ID and the place."
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return error_response(ApiError(status, "InternalServerError", message))
        finally:
            ticket.close()

    def _of(self, request: Request) -> Work:
        return Work(
            self._models,
            self._settings,
            request_id=request.headers.get("x-request-id"),
            own_id=request.scope[RECORD].request_id[:_ID_DIGITS],
            blocks=_block_form(request, self._settings.hash_seed),
        )

    async def _work(self, handler: Handler, raw: bytes, work: Work, ticket: Ticket) -> Done:
        """In place if it is little, for a thread costs more than that; else in a thread."""
        do = functools.partial(_do, handler, raw, work)
        follows = self._settings.links is not None and b"http" in raw
        hashes_much = work.blocks is not None and work.blocks.block_size < _SMALL_BLOCK
        if not (follows or hashes_much) and _is_little(raw, self._settings.worker_bytes):
            return do()
        future = self._pool.submit(do)
        ticket.runs(future)
        return await asyncio.wrap_future(future)

    def _count(self, record: Record, answer: Answer, stages: Mapping[Stage, int]) -> None:
        record.model, record.outcome = answer.model, "exact"
        if answer.inexact is None:
            self._metrics.answered(answer, stages)
        else:
            record.outcome, record.reason = "text_prefix", answer.inexact.value
            self._metrics.inexact(answer.model, record.outcome, record.reason)
        record.tokens, record.images = answer.tokens, answer.images

    async def _without_answer(
        self, error: ApiError, request: Request, raw: bytes | None, record: Record
    ) -> Response:
        if error.reason is None:  # by its form alone, or by a limit
            record.outcome = "refused" if error.status < _SERVER_ERROR else "unavailable"
            record.reason, record.param = error.kind.replace(" ", ""), error.param
            self._metrics.inexact(error.model, record.outcome, record.reason)
            return error_response(error)
        reason, record.model, record.reason = error.reason, error.model, error.reason.value
        record.outcome = "inexact" if error.kind == _INEXACT else "refused"
        may_be_answered = error.kind == _INEXACT or reason in USUALLY_REFUSED
        if not may_be_answered or self._fallback is None or raw is None:
            self._metrics.inexact(error.model, record.outcome, reason.value)
            said = {"x-mmroute-outcome": record.outcome, "x-mmroute-reason": reason.value}
            return error_response(error, said)
        record.outcome = "fallback"
        self._metrics.inexact(error.model, record.outcome, reason.value)
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
                "request_id": record.request_id,
                "url": self._fallback.url,
                "text": failed.message,
            }
            _LOG.warning("fallback failed", extra={"fields": fields})
            return error_response(failed, said)
        self._metrics.fallback(reason.value, str(upstream.status))
        return Response(upstream.body, upstream.status, {**upstream.headers, **said})

    def _late(self, raw: bytes | None) -> ApiError:
        self._metrics.rejected("timeout")
        if raw is None:
            return ApiError(
                HTTPStatus.REQUEST_TIMEOUT,
                "RequestTimeoutError",
                f"The body did not arrive within {self._settings.request_timeout:g} s.",
                headers={"connection": "close"},
            )
        return self._admission.busy("timeout", {})


def _said_of(answer: Answer, record: Record) -> dict[str, str]:
    """Headers: what the body is."""
    said = {**answer.headers, "x-mmroute-outcome": record.outcome or ""}
    if answer.inexact is not None:
        said["x-mmroute-reason"] = answer.inexact.value
    return said


def _is_little(raw: bytes, limit: int) -> bool:
    """Whether a body has at most so many bytes, where data URLs count a 64th.

    A picture is only read over; text is encoded, which takes far longer.
    """
    if len(raw) <= limit:
        return True
    pictures = at = 0
    while (start := raw.find(_DATA, at)) >= 0:
        at = raw.find(b'"', start)
        if at < 0:
            break
        if raw.rfind(_DATA_URL, max(0, start - _LONGEST_TYPE), start) >= 0:
            pictures += at - start
    return len(raw) - pictures + pictures // _PICTURES_WEIGH <= limit


def _do(handler: Handler, raw: bytes, work: Work) -> Done:
    watch = work.models.watch
    watch.start()
    answer = handler(parse_body(raw), work)
    return answer, watch.spent()


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
    if "block_size" not in query and "algorithm" not in query:
        return None
    size, algorithm = query.get("block_size", "16"), query.get("algorithm", "sha256")
    digits = size.isascii() and size.isdecimal() and len(size) <= len(str(_MAX_BLOCK))
    if not digits or not 1 <= int(size) <= _MAX_BLOCK:
        raise bad_request(
            f"block_size must be a positive integer, found {shown(size)}", "block_size"
        )
    known = [known.value for known in Algorithm]
    if algorithm not in known:
        raise bad_request(
            f"algorithm must be one of {', '.join(known)}, found {shown(algorithm)}", "algorithm"
        )
    try:
        none_hash(algorithm, seed)
    except ValueError as error:
        raise bad_request(f"{error} (mmroute serve --hash-seed)", "algorithm") from None
    return BlockForm(algorithm, int(size), seed)
