"""The normalizer of a model that a server has loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

from mmroute.answering.batch import normalize_many
from mmroute.answering.routing import Routing
from mmroute.engines.running import ask_engine, served_models
from mmroute.engines.vllm.engine import VllmEngine
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.reported import ask_cache
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import (
    EngineVersionWarning,
    InexactError,
    ModelError,
    Reason,
    did_you_mean,
    quoted,
)
from mmroute.hashing.hashes import HashCache, Hashes, RefusedHashes
from mmroute.model_directory import find_model
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.requests.checks import check_cache_salt, check_request
from mmroute.requests.request import Request, RequestFields
from mmroute.reuse.fast_paths import FastPaths, Stats
from mmroute.server.remote.requests import chat_request, prompt_request
from mmroute.server.remote.responses import read_response


class RemoteNormalizer:
    """Returns the token IDs that an engine will hold, as a server computes them.

    It has the methods of `mmroute.Normalizer`, and makes the same `Routing`. Block hashes are
    computed here. Safe to share between threads; another process makes its own connections.

    Attributes:
        model: the server's name for the model.
        remote: the server.
        engine: the engine of the server, as it names itself. Block hashes follow its rules.
    """

    def __init__(self, model: str, remote: Remote) -> None:
        """Ask the server for its version, its metrics, the model, and one rendered prompt.

        Block hashes have the block size and the algorithm from the engine's metrics.

        A warning (`EngineVersionWarning`) is given for a version whose block hashes differ from
        the newest one's, and for an unknown version, whose block hashes are refused.
        """
        self.model = model
        self.remote = remote
        self._transport = Transport(remote)
        self._hash_cache = HashCache(FastPaths().hash_cache_bytes)
        try:
            self.engine = ask_engine(self._transport)
            profile = self.engine.profile
            known = f"{self.engine}: its block hashes are not known"
            self._hashing: Hashes = RefusedHashes(VLLM.hashes.settings, known)
            if isinstance(profile, VllmEngine):
                reported = VllmSettings.read(ask_cache(self._transport), None)
                self._hashing = _with_cache(profile.hashes, model, reported)
            self._check_model()
        except InexactError as error:
            self.close()
            raise ModelError(error.reason, str(error)) from error
        if not isinstance(profile, VllmEngine) or profile.hashes != VLLM.hashes:
            hashes = "are refused" if profile is None else "follow its own rules"
            message = f"{self._transport.name} is {self.engine}. Block hashes {hashes}"
            warnings.warn(message, EngineVersionWarning, stacklevel=4)

    def __repr__(self) -> str:
        return f"<RemoteNormalizer of {self.model}: {self._transport.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model and the server, with which another process connects."""
        return RemoteNormalizer, (self.model, self.remote)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        self._transport.close()

    def normalize(self, **fields: Unpack[RequestFields]) -> Routing:
        """The token IDs of one request. No value from a client or the server raises an error.

        The arguments are those of `Normalizer.normalize`, but the server must get each image: as a
        data URL, as a link that it follows, or in `images` as a file (`mmroute.read_image`). A size
        alone gives `remote_inexpressible`, and so does an image beside a prompt. If the server does
        not answer, the reason is `remote_unavailable`.

        Only ``mmroute serve`` checks token IDs against the vocabulary.
        """
        return self.answer(Request.of(fields))

    def answer(self, request: Request) -> Routing:
        """The token IDs of one request; see `normalize`."""
        try:
            check_request(request)
            check_cache_salt(request.cache_salt)
            if request.messages is not None:
                render = chat_request(self.model, request)
            else:
                render = prompt_request(self.model, request)
            reply = self._transport.request("POST", render.path, render.body)
            rendered = read_response(reply, render, self._transport.name)
        except InexactError as inexact:
            return Routing(reason=inexact.reason, message=str(inexact))
        return Routing(
            placeholders=rendered.placeholders,
            identities=rendered.identities,
            lora=request.lora,
            cache_salt=request.cache_salt,
            hashing=self._hashing,
            reads_cache=request.reads_cache,
            _token_ids=rendered.token_ids,
            _hash_cache=self._hash_cache,
        )

    def normalize_many(
        self, requests: Iterable[Mapping[str, Any]], *, threads: int | None = None
    ) -> Iterator[Routing]:
        """The answers to many requests; see `Normalizer.normalize_many`."""
        return normalize_many(self.normalize, requests, 1 if threads is None else threads)

    def stats(self) -> Stats:
        """The counters of the cache of block hashes; the encoder is the server's, and not known."""
        return Stats(None, self._hash_cache.stats())

    def _check_model(self) -> None:
        """Check that the server has the model, and renders a prompt for it."""
        server, models = self._transport.name, served_models(self._transport)
        if self.model not in models:
            raise InexactError(
                Reason.MODEL_NOT_FOUND,
                f"{server} serves {', '.join(models)}, and not {self.model!r}"
                f"{did_you_mean(self.model, models)}",
            )
        if models[self.model].parent is not None:
            raise InexactError(
                Reason.MODEL_NOT_FOUND,
                f"{self.model!r} is an adapter of {models[self.model].parent!r}, and block hashes "
                "cover it: ask for that model, and give `lora` with each request",
            )
        if (first := self.normalize(prompt="a")).reason is not None:
            raise InexactError(
                Reason.REMOTE_UNAVAILABLE,
                f"{server} renders no prompt for {self.model!r}: {first.message}",
            )


def _with_cache(hashes: VllmHashes, model: str, reported: VllmSettings) -> Hashes:
    """The hashes of an engine, with the block size and the algorithm that its metrics report."""
    known, size = hashes.settings, reported.hash_block_size or reported.block_size
    known = replace(
        known,
        algorithm=reported.hash_algorithm or known.algorithm,
        block_size=size or known.block_size,
        block_size_guessed=known.block_size_guessed and size is None,
    )
    return hashes.under(known, reported, lambda: find_model(model))


def connect(model: str, remote: object) -> RemoteNormalizer:
    """Connect to a server that has loaded a model.

    Args:
        model: the server's name for the model.
        remote: the URL of the server, or a `Remote`.

    Raises:
        TypeError: `remote` is neither.
        ValueError: the URL is malformed.
        ModelError: as for `RemoteNormalizer`.
    """
    if isinstance(remote, str):
        remote = Remote(remote)
    if not isinstance(remote, Remote):
        raise TypeError(f"remote must be a URL or a Remote, found {quoted(remote)}")
    return RemoteNormalizer(model, remote)
