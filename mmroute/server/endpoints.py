"""Routes that have a body: what it is, where it is answered, and the fallback."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel

from mmroute.answering.hash_forms import BlockForm, HashForm
from mmroute.answering.stages import Stage
from mmroute.engines.vllm.api.errors import (
    USUALLY_REFUSED,
    ApiError,
    bad_request,
    invalid_body,
    query_parameters,
    require,
)
from mmroute.engines.vllm.api.validation import Schema
from mmroute.errors import Reason, quoted
from mmroute.hashing import Algorithm, none_hash
from mmroute.server.bodies import Body, parse_body
from mmroute.server.capacity import Capacity
from mmroute.server.cost import LONG_STRUCTURE, Cost, check_body, cost_of
from mmroute.server.exchange import Answer, Deferred, Exchange
from mmroute.server.fallback import Fallback
from mmroute.server.front.http import Head, Response, error_response, json_response
from mmroute.server.handling import HandlerContext, HandlerResult
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

_LOG: Final = logging.getLogger(__name__)
_JSON: Final = b"application/json"
_EXACT: Final = {"x-mmroute-outcome": "exact"}
_INEXACT: Final = "InexactRouting"
_MAX_BLOCK: Final = 1 << 20
_SERVER_ERROR: Final = 500
_LONG_BODY: Final = 1 << 20
_LONG_TEXT: Final = 1 << 20
_SMALL_BLOCK: Final = 16
_ID_DIGITS: Final = 16  # of those in an answer, as in vLLM's
_ONE_OF: Final = 16
_BLOCK_PARAMETERS: Final = ("block_size", "algorithm", "hashes")

Handler: TypeAlias = Callable[[R, HandlerContext], HandlerResult]
"""What a route does with a request, in the event loop or in a thread.

It raises `ApiError` for what vLLM refuses, and for what has no exact answer.
"""
Timings: TypeAlias = Mapping[Stage, int]
"""The nanoseconds that each stage of a request took."""


class Endpoints:
    """Answers the routes that have a body; asks the fallback where there is no exact answer."""

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
        # One at a time: a text takes 60 times its bytes while it is encoded, and seconds.
        self._long_pool = ThreadPoolExecutor(1, thread_name_prefix="mmroute-long")
        self._link_pool = ThreadPoolExecutor(
            settings.link_workers, thread_name_prefix="mmroute-links"
        )
        self._requests = itertools.count()  # the stages of one of so many are timed

    def of(self, schema: Schema[R], handler: Handler[R]) -> Callable[[Exchange], Answer]:
        """What answers a route that takes such requests."""
        return functools.partial(self._answer, schema, handler)

    def refuse(self, exchange: Exchange, error: ApiError) -> Response:
        """The response to a request that is not looked at, or has no exact answer."""
        entry = exchange.entry
        if error.limit is not None:
            self._metrics.rejected(error.limit)
        if error.reason is None:  # by its form alone, or by a limit
            entry.outcome = "refused" if error.status < _SERVER_ERROR else "unavailable"
            entry.reason, entry.param = error.kind.replace(" ", ""), error.param
            self._metrics.inexact(error.model, entry.outcome, entry.reason)
            return error_response(error)
        entry.model, entry.reason = error.model, error.reason.value
        entry.outcome = "inexact" if error.kind == _INEXACT else "refused"
        self._metrics.inexact(error.model, entry.outcome, entry.reason)
        said = {"x-mmroute-outcome": entry.outcome, "x-mmroute-reason": entry.reason}
        return error_response(error, said)

    def body_is_late(self) -> ApiError:
        """The error where a body does not arrive in time."""
        return ApiError(
            HTTPStatus.REQUEST_TIMEOUT,
            "RequestTimeoutError",
            f"The body did not arrive within {self._settings.request_timeout:g} s.",
            headers={"connection": "close"},
            limit="timeout",
        )

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._pool, self._long_pool, self._link_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, schema: Schema[R], handler: Handler[R], exchange: Exchange) -> Answer:
        """Answer a small request at once, as a thread costs more. Others are waited for."""
        raw = b""
        try:
            _check_content(exchange.head)
            raw = exchange.body()
            exchange.reservation.enter()
            context = self._context(exchange.head, exchange.entry.request_id)
            body = Body(raw)
            structure = check_body(body, self._settings)
            if structure > LONG_STRUCTURE or len(raw) > _LONG_BODY:
                parse = functools.partial(self._parse, schema, body, structure)
                later = functools.partial(self._parse_first, parse, handler, context, exchange)
            else:
                request, cost = self._parse(schema, body, structure)
                run = functools.partial(self._handle, handler, request, context)
                pool = self._pool_for(cost, context)
                if pool is None:
                    return self._answered(exchange, *run())
                later = functools.partial(self._run, pool, run, exchange)
            return functools.partial(self._in_time, later, exchange, raw)
        except ApiError as error:
            return self._without_answer(error, exchange, raw)

    def _parse(self, schema: Schema[R], body: Body, structure: int) -> tuple[R, Cost]:
        value = parse_body(body, self._models.files)
        request = schema.request(value, long=structure > LONG_STRUCTURE)
        return request, cost_of(request, len(body.raw), self._settings)

    async def _in_time(self, answer: Deferred, exchange: Exchange, raw: bytes) -> Response:
        left = exchange.began + self._settings.request_timeout - time.perf_counter()
        try:
            async with asyncio.timeout(left):
                return await answer()
        except TimeoutError:
            found = self._without_answer(self._capacity.busy("timeout", {}), exchange, raw)
        except ApiError as error:
            found = self._without_answer(error, exchange, raw)
        return found if isinstance(found, Response) else await found()

    async def _parse_first(
        self,
        parse: Callable[[], tuple[R, Cost]],
        handler: Handler[R],
        context: HandlerContext,
        exchange: Exchange,
    ) -> Response:
        """Parse a body that takes long in a thread; what has much in it is answered there, too."""
        request, cost = await self._in(self._pool, parse, exchange)
        run = functools.partial(self._handle, handler, request, context)
        return await self._run(self._pool_for(cost, context) or self._pool, run, exchange)

    async def _run(
        self,
        pool: ThreadPoolExecutor,
        run: Callable[[], tuple[HandlerResult, Timings]],
        exchange: Exchange,
    ) -> Response:
        if pool is self._link_pool:
            exchange.reservation.follow_links()
        return self._answered(exchange, *await self._in(pool, run, exchange))

    async def _in(self, pool: ThreadPoolExecutor, run: Callable[[], T], exchange: Exchange) -> T:
        queued = time.perf_counter()

        def begin() -> T:
            self._metrics.queued(time.perf_counter() - queued)
            return run()

        future = pool.submit(begin)
        exchange.reservation.runs(future)
        return await asyncio.wrap_future(future)

    def _handle(
        self, handler: Handler[R], request: R, context: HandlerContext
    ) -> tuple[HandlerResult, Timings]:
        watch = context.models.watch
        watch.start(runs=next(self._requests) % _ONE_OF == 0)
        result = handler(request, context)
        return result, watch.spent() if watch.runs else {}

    def _pool_for(self, cost: Cost, context: HandlerContext) -> ThreadPoolExecutor | None:
        """The threads that answer a request; None for the event loop."""
        if cost.text > _LONG_TEXT:
            return self._long_pool
        if cost.links and self._settings.links is not None:
            return self._link_pool
        size = context.blocks.block_size if context.blocks else None
        hashes_much = size is not None and size < _SMALL_BLOCK
        long = hashes_much or cost.characters > self._settings.worker_bytes
        return self._pool if long else None

    def _context(self, head: Head, request_id: str) -> HandlerContext:
        return HandlerContext(
            self._models,
            self._settings,
            request_id=head.header(b"x-request-id") or None,
            own_id=request_id[:_ID_DIGITS],
            blocks=_block_form(head.query, self._settings.hash_seed) if head.query else None,
            path=head.path,
        )

    def _answered(self, exchange: Exchange, result: HandlerResult, timings: Timings) -> Response:
        entry = exchange.entry
        entry.model, entry.tokens = result.model, result.tokens
        for count, _ in result.items.values():
            entry.images += count
        if result.inexact is None:
            entry.outcome = "exact"
            self._metrics.answered(result, timings)
            headers = {**result.headers, **_EXACT}
        else:
            entry.outcome, entry.reason = "text_prefix", result.inexact.value
            self._metrics.inexact(result.model, entry.outcome, entry.reason)
            said = {"x-mmroute-outcome": entry.outcome, "x-mmroute-reason": entry.reason}
            headers = {**result.headers, **said}
        return json_response(result.body, result.status, headers)

    def _without_answer(self, error: ApiError, exchange: Exchange, raw: bytes) -> Answer:
        may_be_answered = error.kind == _INEXACT or error.reason in USUALLY_REFUSED
        if error.reason is None or not may_be_answered or self._fallback is None:
            return self.refuse(exchange, error)
        return functools.partial(
            self._ask_fallback, self._fallback, error.reason, error.model, exchange, raw
        )

    async def _ask_fallback(
        self, fallback: Fallback, reason: Reason, model: str | None, exchange: Exchange, raw: bytes
    ) -> Response:
        entry, head = exchange.entry, exchange.head
        entry.model, entry.reason, entry.outcome = model, reason.value, "fallback"
        self._metrics.inexact(model, entry.outcome, reason.value)
        said = {"x-mmroute-fallback": reason.value}
        path = f"{head.path}?{head.query}" if head.query else head.path
        try:
            upstream = await fallback.ask(
                path, raw, head.headers.get(b"x-request-id"), reason, exchange.reservation.keep
            )
        except ApiError as failed:
            self._metrics.fallback(reason.value, "failed")
            if failed.limit is not None:
                self._metrics.rejected(failed.limit)
            fields = {
                "request_id": entry.request_id, "url": fallback.url, "text": failed.message,
            }  # fmt: skip
            _LOG.warning("fallback failed", extra={"fields": fields})
            return error_response(failed, said)
        self._metrics.fallback(reason.value, str(upstream.status))
        return Response(upstream.status, upstream.body, {**upstream.headers, **said})


def _check_content(head: Head) -> None:
    """By what the head says of it: its type as in vLLM, its coding by RFC 9110, section 8.4."""
    media_type = head.headers.get(b"content-type", b"")
    if media_type != _JSON and media_type.lower().partition(b";")[0] != _JSON:
        raise invalid_body(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        )
    coding = head.header(b"content-encoding").lower()
    if coding not in ("", "identity"):
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaTypeError",
            f"The body has the Content-Encoding {quoted(coding)}; it must be sent without any.",
            headers={"accept-encoding": "identity"},
        )


def _block_form(given: str, seed: str | None) -> BlockForm | None:
    """Which block hashes the query asks for: ``?block_size=16&algorithm=sha256``."""
    query = query_parameters(given, _BLOCK_PARAMETERS)
    if not query:
        return None
    size, algorithm = query.get("block_size"), query.get("algorithm")
    if size is not None:
        short = size.isascii() and size.isdecimal() and len(size) <= len(str(_MAX_BLOCK))
        positive = short and 1 <= int(size) <= _MAX_BLOCK
        found = f"block_size must be a positive integer, found {quoted(size)}"
        require(positive, found, "block_size")
    for name, known in (("hashes", HashForm), ("algorithm", Algorithm)):
        values = [value.value for value in known]
        one_of = f"{name} must be one of {', '.join(values)}, found {quoted(query.get(name))}"
        require(query.get(name, values[0]) in values, one_of, name)
    if algorithm is not None:
        try:
            none_hash(algorithm, seed)
        except ValueError as error:
            raise bad_request(f"{error} (mmroute serve --hash-seed)", "algorithm") from None
    form = HashForm(query.get("hashes", HashForm.HEX))
    return BlockForm(algorithm, None if size is None else int(size), seed, form)
