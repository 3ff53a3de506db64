"""What an operator decides about a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mmroute.engines.vllm.api import ApiOptions
from mmroute.errors import Reason, quoted
from mmroute.net.links import ImageLinks

_MEBIBYTE: Final = 1 << 20
_POSITIVE: Final = (
    "max_body_bytes", "max_total_body_bytes", "max_text_bytes", "max_structure",
    "max_concurrency", "workers", "link_workers", "request_timeout", "fallback_timeout",
)  # fmt: skip

# The normalizer's messages advise its caller, and these the client and operator of a server.
_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.IMAGE_SIZE_UNKNOWN: "an image is a link, and this server follows none, or it has only "
    "a uuid; send it as a data URL, or allow its host (mmroute serve --image-host)",
    Reason.IMAGE_LINK_REFUSED: "an image is a link that this server does not follow; allow its "
    "host and network (mmroute serve --image-host, --image-network)",
}


class InexactPolicy(StrEnum):
    """What becomes of a request that vLLM answers, and mmroute cannot exactly."""

    ERROR = "error"
    """422, with the reason."""
    FALLBACK = "fallback"
    """A real vLLM render is asked, and the answer says so."""
    TEXT_PREFIX = "text-prefix"
    """A chat whose images are the cause gets the tokens before the first of them, and the answer
    says so; all others get the error."""


class AccessLog(StrEnum):
    """Which requests get a log line."""

    ALL = "all"
    INEXACT = "inexact"
    """Those without an exact answer of mmroute's own, and failures."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What an operator decides about a server.

    Attributes:
        inexact: the policy for a request without an exact answer.
        fallback_url: the URL of a real vLLM render, for `InexactPolicy.FALLBACK`.
        fallback_api_key: the key to send to the fallback as a bearer token.
        fallback_timeout: seconds for the whole of one request to it.
        strict: refuse `prompt` together with `messages`, and tools without a parser; end where the
            fallback is an engine of other rules.
        trust_request_mm_kwargs: let requests set `mm_processor_kwargs`, as vLLM's option does.
        tokenizer_info: serve ``/tokenizer_info``.
        api_keys: the keys of which ``/v1`` needs one; empty for none.
        admin_key: the key for ``/admin``, which adds and removes models; None: no such routes.
        request_id_headers: answer with ``X-Request-Id``.
        otlp_traces_endpoint: URL of an OpenTelemetry collector; None to trace nothing.
        links: permission to follow links to images; None to follow none.
        max_body_bytes: the most bytes of one request.
        max_total_body_bytes: the most bytes of all requests that are being answered.
        max_text_bytes: the most bytes of one request, beside its data URLs.
        max_structure: commas, colons and brackets of one request; a bracket counts as four.
        max_concurrency: requests that are being answered; more get a 503.
        request_timeout: seconds for one request, from the end of its head.
        worker_bytes: a request of more is answered in a thread, so that the others need not
            wait: bytes of the body beside its pictures and token IDs, one for each token ID, a 64th
            of data URLs, 512 for each picture (and all bytes of one whose header takes long), 256
            for each of several prompts, 16 for each token that is decoded.
        workers: the number of such threads.
        link_workers: threads for requests whose links are followed; more of them get a 503.
        access_log: the requests that get a log line.
        hash_seed: the engine's PYTHONHASHSEED, for block hashes.

    Raises:
        ValueError: a limit is not positive, or the fallback has no URL (or has one for nothing).
    """

    inexact: InexactPolicy = InexactPolicy.ERROR
    fallback_url: str | None = None
    fallback_api_key: str | None = field(default=None, repr=False)
    fallback_timeout: float = 30.0
    strict: bool = False
    trust_request_mm_kwargs: bool = False
    tokenizer_info: bool = False
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_key: str | None = field(default=None, repr=False)
    request_id_headers: bool = False
    otlp_traces_endpoint: str | None = None
    links: ImageLinks | None = None
    max_body_bytes: int = 64 * _MEBIBYTE
    max_total_body_bytes: int = 512 * _MEBIBYTE
    max_text_bytes: int = 16 * _MEBIBYTE
    max_structure: int = _MEBIBYTE
    max_concurrency: int = 256
    request_timeout: float = 30.0
    worker_bytes: int = 16 << 10
    workers: int = 4
    link_workers: int = 32
    access_log: AccessLog = AccessLog.INEXACT
    hash_seed: str | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, found {quoted(getattr(self, name))}")
        if self.admin_key == "" or "" in self.api_keys:
            raise ValueError("an API key or admin key must not be empty")
        if self.worker_bytes < 0:
            raise ValueError(f"worker_bytes must not be negative, found {self.worker_bytes}")
        if self.max_total_body_bytes < self.max_body_bytes:
            raise ValueError("max_total_body_bytes must not be less than max_body_bytes")
        if (self.inexact is InexactPolicy.FALLBACK) != (self.fallback_url is not None):
            raise ValueError("a fallback URL and the policy `fallback` go together")

    @property
    def api_options(self) -> ApiOptions:
        """What of it decides about answers."""
        return ApiOptions(
            strict=self.strict,
            trusts_mm_kwargs=self.trust_request_mm_kwargs,
            text_prefix=self.inexact is InexactPolicy.TEXT_PREFIX,
            advice=_ADVICE,
        )
