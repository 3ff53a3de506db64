"""Answers the routes that have a body: in the event loop, in a thread, or by the fallback."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from mmroute.answering.hash_forms import BlockForm, HashForm
from mmroute.answering.stages import Stage
from mmroute.errors import InexactError, RandomSeedError, Reason, quoted
from mmroute.hashing import Algorithm, none_hash
from mmroute.requests.items import Modality
from mmroute.server.api import (
    Call,
    Cost,
    Reply,
    Route,
    ServedModel,
    default_api,
    own_routes,
    read,
)
from mmroute.server.api_errors import (
    USUALLY_REFUSED,
    ApiError,
    bad_request,
    invalid_body,
    of_inexact,
    require,
)
from mmroute.server.bodies import (
    LONG_STRUCTURE,
    Body,
    check_body,
    check_strict,
    check_text,
    parse_body,
)
from mmroute.server.errors import error_response, query_parameters
from mmroute.server.exchange import Answer, Capacity, Deferred, Exchange
from mmroute.server.fallback import Fallback
from mmroute.server.front.http import Head, Response, json_response
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.settings import AnswerFields, ServerSettings

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_JSON: Final = b"application/json"
_EXACT: Final = {"x-mmroute-outcome": "exact"}
_INEXACT: Final = "InexactRouting"
_MAX_BLOCK: Final = 1 << 20
_SERVER_ERROR: Final = 500
_LONG_BODY: Final = 1 << 20
_LONG_TEXT: Final = 1 << 20
_SMALL_BLOCK: Final = 16
_TIMED_ONE_OF: Final = 16
_KEPT_QUERIES: Final = 16
_PARAMETERS: Final = ("block_size", "algorithm", "hashes", "fields")


class Answered(NamedTuple):
    """A request that was answered."""

    model: str  # the served name
    reply: Reply
    timings: Mapping[Stage, int]  # nanoseconds; empty for requests that are not timed


class AnswerForm(NamedTuple):
    """The form of an answer, which a query may set."""

    blocks: BlockForm | None  # the block hashes to put into the answer
    tokens_only: bool  # whether to leave out what routers do not read


Done: TypeAlias = Answered | Response
Job: TypeAlias = tuple[Cost, Callable[[], Done]]
"""The cost of a request, and the function that answers it in the event loop or in a thread."""
Read: TypeAlias = Callable[[Any, Exchange, AnswerForm], Job]
"""A function that makes a job of the JSON value of a body. It and the job raise `ApiError`."""


class Endpoints:
    """Answers the routes that have a body, and asks the fallback if there is no exact answer."""

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
        self._options = settings.api_options
        self._metrics = metrics
        self._capacity = capacity
        self._fallback = fallback
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="mmroute-work")
        # One at a time: encoding a long text takes seconds, and 60 times the memory of the text.
        self._long_pool = ThreadPoolExecutor(1, thread_name_prefix="mmroute-long")
        self._link_pool = ThreadPoolExecutor(
            settings.link_workers, thread_name_prefix="mmroute-links"
        )
        self._form = AnswerForm(None, settings.fields is AnswerFields.TOKENS)
        # A client's queries are few, and parsing one takes as long as reading its request.
        self._form_of = functools.lru_cache(_KEPT_QUERIES)(lambda query: _form(query, settings))
        self._requests = itertools.count()  # the stages of one request of 16 are timed

    def of(self, read: Read) -> Callable[[Exchange], Answer]:
        """The function that answers a route whose bodies are read by `read`."""
        return functools.partial(self._answer, read)

    def ask(self, value: Any, exchange: Exchange, form: AnswerForm) -> Job:
        """Read a request of the engine's API."""
        path = exchange.route.name
        asked = self._models.asked(value)
        api = default_api() if asked is None else asked.api
        route = api.routes.get(path)
        if route is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFoundError", f"The engine has no {path}.")
        request = read(self._models.schema(path, value), value)
        run = functools.partial(self._handle, route, request, exchange, form)
        return api.cost(path, value, exchange.entry.bytes), run

    def refuse(self, exchange: Exchange, error: ApiError) -> Response:
        """The response to a request that is refused, or that has no exact answer."""
        entry = exchange.entry
        if error.limit is not None:
            self._metrics.rejected(error.limit)
        if error.reason is None:  # it is malformed, or over a limit
            entry.outcome = "refused" if error.status < _SERVER_ERROR else "unavailable"
            entry.reason, entry.param = error.kind.replace(" ", ""), error.param
            self._metrics.inexact(error.model, entry.outcome, entry.reason)
            return error_response(error)
        entry.model, entry.reason = error.model, error.reason.value
        entry.outcome = "inexact" if error.kind == _INEXACT else "refused"
        self._metrics.inexact(error.model, entry.outcome, entry.reason)
        said = {"x-mmroute-outcome": entry.outcome, "x-mmroute-reason": entry.reason}
        return error_response(error, said)

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._pool, self._long_pool, self._link_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, read: Read, exchange: Exchange) -> Answer:
        """Answer a small request at once, because a thread costs more; defer any other one."""
        raw, query = b"", exchange.head.query
        try:
            _check_content(exchange.head)
            raw = exchange.body()
            exchange.enter()
            form = self._form_of(query) if query else self._form
            body = Body(raw)
            structure = check_body(body, self._settings)
            parse = functools.partial(self._parse, read, body, exchange, form)
            if structure > LONG_STRUCTURE or len(raw) > _LONG_BODY:
                later = functools.partial(self._parse_first, parse, exchange)
            else:
                pool, run = parse()
                if pool is None:
                    return self._answered(exchange, run())
                later = functools.partial(self._run, pool, run, exchange)
            return functools.partial(self._in_time, later, exchange, raw)
        except ApiError as error:
            return self._without_answer(error, exchange, raw)

    def _parse(
        self,
        read: Read,
        body: Body,
        exchange: Exchange,
        form: AnswerForm,
    ) -> tuple[ThreadPoolExecutor | None, Callable[[], Done]]:
        models = self._models
        value, is_json = parse_body(body, models.files)
        asked = models.asked(value)
        if asked is not None and asked.source.engine_settings.strict_json:
            check_strict(body, value, is_json)
        cost, run = read(value, exchange, form)
        check_text(cost.text, self._settings)
        return self._pool_for(cost, form.blocks), run

    async def _in_time(self, answer: Deferred, exchange: Exchange, raw: bytes) -> Response:
        left = exchange.began + self._settings.request_timeout - time.perf_counter()
        try:
            async with asyncio.timeout(left):
                return await answer()
        except TimeoutError:
            fallback_answer = self._without_answer(
                self._capacity.busy("timeout", {}), exchange, raw
            )
        except ApiError as error:
            fallback_answer = self._without_answer(error, exchange, raw)
        return fallback_answer if isinstance(fallback_answer, Response) else await fallback_answer()

    async def _parse_first(
        self,
        parse: Callable[[], tuple[ThreadPoolExecutor | None, Callable[[], Done]]],
        exchange: Exchange,
    ) -> Response:
        """Parse a long body in a thread, and answer it in a thread, too."""
        pool, run = await self._run_in(self._pool, parse, exchange)
        return await self._run(pool or self._pool, run, exchange)

    async def _run(
        self, pool: ThreadPoolExecutor, run: Callable[[], Done], exchange: Exchange
    ) -> Response:
        if pool is self._link_pool:
            exchange.follow_links()
        return self._answered(exchange, await self._run_in(pool, run, exchange))

    async def _run_in(
        self, pool: ThreadPoolExecutor, run: Callable[[], T], exchange: Exchange
    ) -> T:
        queued = time.perf_counter()

        def begin() -> T:
            self._metrics.queued.observe(time.perf_counter() - queued)
            return run()

        future = pool.submit(begin)
        exchange.runs(future)
        return await asyncio.wrap_future(future)

    def _handle(self, route: Route, request: Any, exchange: Exchange, form: AnswerForm) -> Answered:
        watch = self._models.watch
        timed = next(self._requests) % _TIMED_ONE_OF == 0
        watch.start(runs=timed)
        model = self._models.find(request.model)
        if form.blocks is not None and form.blocks.algorithm is not None:
            _check_seed(form.blocks, model.normalizer.model.hashing.settings.seed)
        own_id, client_id = exchange.entry.own_id, exchange.client_id or None
        try:
            reply = route.answer_to(request, Call(model, self._options, client_id, own_id, *form))
        except ApiError as error:
            if error.reason is not None:
                error.model = model.name
            raise
        self._compare(model, reply)
        return Answered(model.name, reply, watch.spent() if timed else {})

    def _compare(self, model: ServedModel, reply: Reply) -> None:
        """Compare an answer with what the engine will announce. Raises `engine_differs`."""
        try:
            trust = self._models.entry(model.name).trust
        except ApiError:  # the model was removed in the meantime
            return
        if trust is not None and reply.routings:
            try:
                trust.answered(reply, model.model.engine.release.version)
            except InexactError as differs:
                error = of_inexact(differs)
                error.model = model.name
                raise error from None

    def _pool_for(self, cost: Cost, blocks: BlockForm | None) -> ThreadPoolExecutor | None:
        """The pool of threads that answers a request; None for the event loop."""
        if cost.text > _LONG_TEXT:
            return self._long_pool
        if cost.links and self._settings.links is not None:
            return self._link_pool
        size = blocks.block_size if blocks else None
        hashes_much = size is not None and size < _SMALL_BLOCK
        long = hashes_much or cost.characters > self._settings.worker_bytes
        return self._pool if long else None

    def _answered(self, exchange: Exchange, done: Done) -> Response:
        if isinstance(done, Response):
            return done
        entry, reply = exchange.entry, done.reply
        entry.model = done.model
        items: dict[Modality, tuple[int, int]] = {}
        for routing in reply.routings:
            entry.tokens += len(routing.token_ids)
            for placed in routing.placeholders:
                count, tokens = items.get(placed.modality, (0, 0))
                items[placed.modality] = count + 1, tokens + placed.length
                entry.images += 1
        entry.outcome = "exact"
        self._metrics.answered(done.model, entry.tokens, items, done.timings)
        headers = {**reply.headers, **_EXACT} if reply.headers else _EXACT
        return json_response(reply.body, headers=headers)

    def _without_answer(self, error: ApiError, exchange: Exchange, raw: bytes) -> Answer:
        may_be_answered = error.kind == _INEXACT or error.reason in USUALLY_REFUSED
        may_be_answered &= exchange.route.name not in own_routes()
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
                path, raw, head.headers.get(b"x-request-id"), reason, exchange.keep
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
    """Check the headers of the body: its type as vLLM does, its coding by RFC 9110, 8.4."""
    media_type = head.headers.get(b"content-type", b"")
    if media_type != _JSON and media_type.lower().partition(b";")[0] != _JSON:
        raise invalid_body(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        )
    if b"content-encoding" not in head.headers:
        return
    coding = head.header(b"content-encoding").lower()
    if coding not in ("", "identity"):
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaTypeError",
            f"The body has the Content-Encoding {quoted(coding)}; it must be sent without any.",
            headers={"accept-encoding": "identity"},
        )


def _check_seed(blocks: BlockForm, of_engine: str | None) -> None:
    """Check that the algorithm that a request asks for has its seed."""
    try:
        none_hash(str(blocks.algorithm), of_engine if blocks.seed is None else blocks.seed)
    except RandomSeedError as error:
        raise bad_request(f"{error} (mmroute serve --hash-seed)", "algorithm") from None


def _form(query_text: str, settings: ServerSettings) -> AnswerForm:
    """The form that a query such as ``fields=tokens&block_size=16`` asks for."""
    query = query_parameters(query_text, _PARAMETERS)
    fields = query.pop("fields", settings.fields)
    _require_one_of("fields", fields, AnswerFields)
    blocks = _block_form(query, settings.hash_seed) if query else None
    return AnswerForm(blocks, fields == AnswerFields.TOKENS)


def _require_one_of(name: str, value: str | None, known: Iterable[StrEnum]) -> None:
    values = [one.value for one in known]
    one_of = f"{name} must be one of {', '.join(values)}, found {quoted(value)}"
    require(value in values, one_of, name)


def _block_form(query: Mapping[str, str], seed: str | None) -> BlockForm:
    """The block hashes that a query such as ``block_size=16&algorithm=sha256`` asks for."""
    size, algorithm = query.get("block_size"), query.get("algorithm")
    if size is not None:
        short = size.isascii() and size.isdecimal() and len(size) <= len(str(_MAX_BLOCK))
        positive = short and 1 <= int(size) <= _MAX_BLOCK
        message = f"block_size must be a positive integer, found {quoted(size)}"
        require(positive, message, "block_size")
    form = query.get("hashes", HashForm.HEX)
    _require_one_of("hashes", form, HashForm)
    if algorithm is not None:
        _require_one_of("algorithm", algorithm, Algorithm)
    return BlockForm(algorithm, None if size is None else int(size), seed, HashForm(form))
