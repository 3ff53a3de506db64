"""The settings of a server, which its operator chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mmroute.errors import Reason, quoted
from mmroute.net.links import ImageLinks
from mmroute.server.api import ApiOptions

_MEBIBYTE: Final = 1 << 20
_POSITIVE: Final = (
    "max_body_bytes", "max_total_body_bytes", "max_text_bytes", "max_structure",
    "max_concurrency", "workers", "link_workers", "request_timeout", "fallback_timeout",
)  # fmt: skip

# The normalizer's messages advise its caller. These advise the client and operator of a server.
_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.IMAGE_SIZE_UNKNOWN: "an image is a link, and this server follows none, or it has only "
    "a uuid; send it as a data URL, or allow its host (mmroute serve --image-host)",
    Reason.IMAGE_LINK_REFUSED: "an image is a link that this server does not follow; allow its "
    "host and network (mmroute serve --image-host, --image-network)",
}


class InexactPolicy(StrEnum):
    """The answer to a request that vLLM may answer, and for which there is no exact answer here."""

    ERROR = "error"
    """422, with the reason."""
    FALLBACK = "fallback"
    """The answer of vLLM's render server, marked as such."""
    TEXT_PREFIX = "text-prefix"
    """The tokens before the first image, marked as such, if the images of a chat are the cause; the
    error for all other requests."""


class AnswerFields(StrEnum):
    """The fields of the answers of render routes."""

    ALL = "all"
    """Those of vLLM."""
    TOKENS = "tokens"
    """Those that routers read: token IDs, features, and the hashes that a request asks for."""


class AccessLog(StrEnum):
    """The requests that get a log line."""

    ALL = "all"
    INEXACT = "inexact"
    """Requests without an exact answer of mmroute's own, and failures."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server.

    Attributes:
        inexact: the policy for a request without an exact answer.
        fallback_url: the URL of vLLM's render server, for `InexactPolicy.FALLBACK`.
        fallback_api_key: the key to send to the fallback as a bearer token; None for no key.
        fallback_timeout: the seconds for one request to the fallback.
        fields: the fields of the answers of render routes, for requests that do not choose.
        strict: whether to refuse `prompt` together with `messages`, and to stop if the fallback is
            an engine with other rules.
        trust_request_mm_kwargs: whether requests to any model may set `mm_processor_kwargs`, and
            not only to those whose engine settings say so.
        tokenizer_info: whether to serve ``/tokenizer_info``.
        api_keys: the API keys; ``/v1`` needs one of them. Empty if no key is needed.
        admin_key: the key for ``/admin``, which adds and removes models; None for no such routes.
        request_id_headers: whether answers have the header ``X-Request-Id``.
        otlp_traces_endpoint: the URL of an OpenTelemetry collector; None for no tracing.
        links: permission to follow links to images; None if no link is followed.
        max_body_bytes: the most bytes of one request.
        max_total_body_bytes: the most bytes of all requests that are being answered.
        max_text_bytes: the most bytes of one request without its data URLs.
        max_structure: the most commas, colons and brackets of one request, where a bracket counts
            as four.
        max_concurrency: the most requests that are being answered; further ones get a 503.
        request_timeout: the seconds for one request, from the end of its head.
        worker_bytes: the size above which a request is answered in a thread, so that others need
            not wait. The size is the number of bytes without pictures and token IDs, plus one for
            each token ID, a 64th of the bytes of data URLs, 512 for each picture (all bytes of a
            picture whose header takes long), 256 for each of several prompts, and 16 for each token
            that is decoded.
        workers: the number of such threads.
        link_workers: the number of threads for requests whose links are followed; further such
            requests get a 503.
        access_log: the requests that get a log line.
        hash_seed: the engine's PYTHONHASHSEED, for block hashes.

    Raises:
        ValueError: a limit is not positive, or only one of fallback URL and policy is set.
    """

    inexact: InexactPolicy = InexactPolicy.ERROR
    fallback_url: str | None = None
    fallback_api_key: str | None = field(default=None, repr=False)
    fallback_timeout: float = 30.0
    fields: AnswerFields = AnswerFields.ALL
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
        """The settings on which answers depend."""
        return ApiOptions(
            strict=self.strict,
            trusts_mm_kwargs=self.trust_request_mm_kwargs,
            text_prefix=self.inexact is InexactPolicy.TEXT_PREFIX,
            advice=_ADVICE,
        )
