"""The settings of a server, which its operator chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from mmroute.errors import Reason, quoted
from mmroute.net.links import ImageLinks
from mmroute.server.api import ApiOptions
from mmroute.server.options import option

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


_answer: Final = partial(option, group="what it answers")
_limit: Final = partial(option, group="limits")
_key: Final = partial(option, group="where it listens", metavar="KEY", secret=True)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server. Each but these is an option of ``mmroute serve``, and says what.

    Attributes:
        inexact: the policy for a request without an exact answer.
        links: permission to follow links to images; None if no link is followed.

    Raises:
        ValueError: a limit is not positive, or only one of fallback URL and policy is set.
    """

    inexact: InexactPolicy = InexactPolicy.ERROR
    links: ImageLinks | None = None
    api_keys: tuple[str, ...] = _key(
        (),
        "a key that requests to /v1 must have, as in vLLM; other routes need none (repeatable)",
        flag="--api-key",
    )
    admin_key: str | None = _key(
        None,
        "the key for /admin/models, where models are added and removed (default: there are no such "
        "routes)",
    )
    fallback_url: str | None = _answer(None, "a real vLLM render: http://HOST:PORT", metavar="URL")
    fallback_api_key: str | None = _answer(
        None, "the API key of the fallback server", metavar="KEY", secret=True
    )
    fallback_timeout: float = _answer(
        30.0, "the seconds for an answer of the fallback server", metavar="S"
    )
    fields: AnswerFields = _answer(  # noqa: RUF009 - it makes a field
        AnswerFields.ALL,
        "the fields of rendered prompts, where a request does not choose: those of vLLM, or only "
        "token IDs, features and hashes, as with ?fields=tokens",
    )
    strict: bool = _answer(
        False,
        "refuse prompt together with messages; end with exit status 1 if the fallback is an engine "
        "with other rules, or of an unknown version",
    )
    trust_request_mm_kwargs: bool = _answer(
        False,
        "the same as vLLM's option, for all models (default: as in each one's --engine-args)",
    )
    tokenizer_info: bool = _answer(
        False,
        "serve /tokenizer_info, as vLLM's option does",
        flag="--enable-tokenizer-info-endpoint",
    )
    request_id_headers: bool = _answer(
        False, "answer with X-Request-Id", flag="--enable-request-id-headers"
    )
    hash_seed: str | None = _answer(
        None, "the engine's PYTHONHASHSEED, for ?block_size=", metavar="SEED"
    )
    max_body_bytes: int = _limit(64 * _MEBIBYTE, "bytes of one request")
    max_total_body_bytes: int = _limit(512 * _MEBIBYTE, "bytes of all requests at a time")
    max_text_bytes: int = _limit(16 * _MEBIBYTE, "bytes of one request, without its data URLs")
    max_structure: int = _limit(_MEBIBYTE, "commas, colons and (four each) brackets of one request")
    max_concurrency: int = _limit(256, "requests at a time; more get a 503")
    request_timeout: float = _limit(30.0, "seconds for one request, from the end of its head")
    worker_bytes: int = _limit(
        16 << 10, "larger requests get a thread, so that others need not wait; a picture counts 512"
    )
    workers: int = _limit(4, "threads for larger requests")
    link_workers: int = _limit(32, "threads that follow links; more such requests get a 503")
    access_log: AccessLog = _limit(  # noqa: RUF009 - likewise
        AccessLog.INEXACT, "which requests get a log line"
    )

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
            advice=_ADVICE,
        )
