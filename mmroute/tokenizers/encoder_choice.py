"""The choice of a model's encoder: made in the background, while the reference encodes."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import tokenizers

from mmroute.errors import ModelError, Reason, quoted
from mmroute.reuse.fast_paths import EncoderChoice, EncoderStats, FastPaths
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoders import (
    CachingEncoder,
    Encoder,
    FastEncoder,
    ReferenceEncoder,
    boundary_tokens,
    may_be_cut,
)
from mmroute.tokenizers.probe_texts import probe_texts

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
# The shortest texts that are cached, in characters. Encoding them takes 0.3 and 0.03 ms.
_MIN_CACHED_REFERENCE: Final = 1024
_MIN_CACHED_FASTOKENS: Final = 16384
# Characters that the reference encodes in 20 ms; a choice takes up to 2 s of a processor.
_MOST_WITHOUT_A_CHOICE: Final = 1 << 14
_FLAGS: Final = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")


class _UnfitError(Exception):
    """fastokens cannot be used for this tokenizer; the message says why."""


class Ahead(NamedTuple):
    """fastokens, which is being loaded while the reference is."""

    tokens: list[dict[str, Any]]  # the added tokens that it is loaded with, as in `tokenizer.json`
    loading: Future[Any]  # the `fastokens.Tokenizer`, when it is loaded


def load_ahead(
    declared: Mapping[str, Any],
    foreseen: Mapping[int, tokenizers.AddedToken],
    fast_paths: FastPaths,
) -> Ahead | None:
    """Begin to load fastokens in a thread, if the encoder is chosen at once."""
    if not fast_paths.at_once or fast_paths.encoder == EncoderChoice.TOKENIZERS:
        return None
    tokens = _listed(foreseen)
    try:
        return Ahead(tokens, _load(declared, tokens))
    except _UnfitError:
        return None  # `choose_encoder` says why


def choose_encoder(
    backend: tokenizers.Tokenizer,
    declared: Mapping[str, Any],
    fast_paths: FastPaths,
    ahead: Ahead | None = None,
) -> Encoder:
    """The fastest encoder that has the reference's IDs; until it has proved that, the reference."""
    choose = functools.partial(_choose, backend, declared, fast_paths, ahead)
    if fast_paths.encoder == EncoderChoice.FASTOKENS:
        return choose()
    pending = PendingEncoder(choose, ReferenceEncoder(backend, "the others are not ready"))
    if fast_paths.at_once:
        pending.begin()
    return pending


class PendingEncoder:
    """The reference encoder, until another encoder is chosen."""

    def __init__(self, choose: Callable[[], Encoder], reference: ReferenceEncoder) -> None:
        self._choose = choose
        self._reference = reference
        self._characters = 0
        self._once = threading.Lock()  # is never released
        self._process = 0  # the one whose thread chooses
        self._choosing: Future[Encoder] = Future()
        self._chosen: Encoder | None = None

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        encoder = self._chosen or self._present(text)
        return encoder.encode(text, add_special_tokens=add_special_tokens)

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return (self._chosen or self._present(text)).encode_cut(text)

    def stats(self) -> EncoderStats:
        """The chosen encoder's figures; waits until it is chosen."""
        return self.chosen().stats()

    def chosen(self) -> Encoder:
        """The chosen encoder; waits until it is chosen."""
        if self._chosen is None:
            self.begin()
            forked = os.getpid() != self._process and not self._choosing.done()
            self._chosen = self._reference if forked else self._result()
        return self._chosen

    def _present(self, text: str) -> Encoder:
        self._characters += len(text)
        if self._characters > _MOST_WITHOUT_A_CHOICE:
            self.begin()
        return self.chosen() if self._choosing.done() else self._reference

    def begin(self) -> None:
        """Begin to choose, if that has not begun."""
        self._process = self._process or os.getpid()
        if self._once.acquire(blocking=False):
            choose = self._choose
            del self._choose  # it holds the tokenizer's JSON
            _run_in_thread(choose, self._choosing)

    def _result(self) -> Encoder:
        try:
            return self._choosing.result()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - an optimization must not fail a request
            _LOG.exception("choosing an encoder failed; the reference, tokenizers, encodes")
            return self._reference


def _run_in_thread(work: Callable[[], T], done: Future[T]) -> None:
    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            done.set_exception(error)

    try:
        threading.Thread(target=run, name="mmroute-encoder").start()
    except RuntimeError as error:  # there are too many threads
        done.set_exception(error)


def _choose(
    backend: tokenizers.Tokenizer,
    declared: Mapping[str, Any],
    fast_paths: FastPaths,
    ahead: Ahead | None,
) -> Encoder:
    reference = ReferenceEncoder(backend, "by choice")
    encoder: Encoder = reference
    if fast_paths.encoder != EncoderChoice.TOKENIZERS:
        try:
            encoder = _proved(backend, declared, ahead)
        except _UnfitError as unfit:
            if fast_paths.encoder == EncoderChoice.FASTOKENS:
                raise ModelError(Reason.FAST_ENCODER_UNAVAILABLE, f"{unfit}.") from unfit
            _LOG.info("%s; the reference, tokenizers, encodes instead", unfit)
            encoder = reference = ReferenceEncoder(backend, str(unfit))
    if not fast_paths.text_cache_bytes:
        return encoder
    boundaries = boundary_tokens(backend, declared)
    if not boundaries or not may_be_cut(encoder, boundaries):
        return encoder
    return CachingEncoder(
        encoder,
        boundaries,
        max_bytes=fast_paths.text_cache_bytes,
        min_chars=_MIN_CACHED_REFERENCE if encoder is reference else _MIN_CACHED_FASTOKENS,
    )


def _proved(
    backend: tokenizers.Tokenizer, declared: Mapping[str, Any], ahead: Ahead | None
) -> FastEncoder:
    """fastokens, if it has the reference's IDs for all probe texts."""
    tokens = _listed(backend.get_added_tokens_decoder())
    foreseen = ahead is not None and ahead.tokens == tokens
    loading = ahead.loading if ahead is not None and foreseen else _load(declared, tokens)
    texts = list(probe_texts([token["content"] for token in tokens]))
    right = [
        (text, special, backend.encode(text, add_special_tokens=special).ids)
        for text in texts
        for special in (False, True)
    ]
    try:
        fast = loading.result()
    except BaseException as error:  # fastokens raises many types for what it does not support
        raise _UnfitError(f"{_engine()} cannot load this tokenizer: {error}") from error
    for text, special, expected in right:
        try:
            ids, _ = fast.encode_batch_flat([text], add_special_tokens=special)
        except BaseException as error:  # a panic of its native code is no Exception
            raise _UnfitError(f"{_engine()} declines {quoted(text)}: {error}") from error
        if np.frombuffer(ids, "<u4").tolist() != expected:
            _LOG.warning("%s has other IDs than tokenizers for %r", _engine(), text)
            raise _UnfitError(f"{_engine()} has other IDs for the probe text {quoted(text)}")
    why = f"has the IDs of tokenizers {tokenizers.__version__} for {len(texts)} probe texts"
    return FastEncoder(fast, ReferenceEncoder(backend, "by choice"), _engine(), why)


def _load(declared: Mapping[str, Any], tokens: list[dict[str, Any]]) -> Future[Any]:
    """Load fastokens in a thread, with these added tokens."""
    loading: Future[Any] = Future()
    try:
        import fastokens  # an optional dependency
    except ImportError:
        raise _UnfitError("fastokens is not installed") from None
    serialized = msgspec.json.encode({**declared, "added_tokens": tokens}).decode()

    def load() -> Any:
        fast = fastokens.Tokenizer.from_json_str(serialized)
        fast.encode("a b")  # the first call prepares the rest
        return fast

    _run_in_thread(load, loading)
    return loading


def _listed(added: Mapping[int, tokenizers.AddedToken]) -> list[dict[str, Any]]:
    """Added tokens as tokenizer.json lists them."""
    return [
        {"id": token_id, **{flag: getattr(token, flag) for flag in _FLAGS}}
        for token_id, token in sorted(added.items())
    ]


def _engine() -> str:
    return f"fastokens {importlib.metadata.version('fastokens')}"
