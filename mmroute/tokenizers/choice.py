"""Which encoder a model gets, decided beside the rest of its loading."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import tokenizers

from mmroute.errors import ModelError, Reason, shown
from mmroute.fast_paths import EncoderChoice, EncoderStats, FastPaths
from mmroute.geometry import TokenIds
from mmroute.tokenizers.encoders import Encoder, FastEncoder, ReferenceEncoder, ShadowedEncoder
from mmroute.tokenizers.prefix_reuse import PrefixReuse, boundary_tokens, may_be_cut
from mmroute.tokenizers.probe_texts import probe_texts

__all__ = ["EncoderLoading", "PendingEncoder"]

_LOG: Final = logging.getLogger(__name__)
_WORTH_KEEPING: Final = 1024  # characters, which take the reference 0.3 ms
_WORTH_KEEPING_FAST: Final = 16384  # which take fastokens 0.03 ms
_SHORT: Final = 256  # characters that the reference encodes in less time than it takes to wait


class _UnfitError(Exception):
    """fastokens is not used; the message says why."""


class EncoderLoading:
    """Builds a `fastokens.Tokenizer` and proves it, while the reference and the rest are loaded.

    Args:
        serialized: the JSON of the tokenizer.
        fast_paths: what is wanted.
    """

    def __init__(self, serialized: str, fast_paths: FastPaths) -> None:
        self._fast_paths = fast_paths
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmroute-encoder")
        wanted = fast_paths.encoder != EncoderChoice.TOKENIZERS
        self._building = self._thread.submit(_build, serialized) if wanted else None

    def finish(
        self,
        backend: tokenizers.Tokenizer,
        declared: Mapping[str, Any],
        merged: Sequence[tokenizers.AddedToken],
        max_token_id: int,
    ) -> Encoder:
        """The fastest encoder that has the reference's IDs; it may still be proving that.

        Args:
            backend: the reference, complete.
            declared: the JSON that both are made from.
            merged: the tokens that were added to it.
            max_token_id: the largest ID of its vocabulary.

        Raises:
            ModelError: `fast_encoder_unavailable` if nothing but fastokens will do.
        """
        choosing = self._thread.submit(
            _choose, backend, self._building, declared, merged, max_token_id, self._fast_paths
        )
        self._thread.shutdown(wait=False)
        if self._fast_paths.encoder == EncoderChoice.FASTOKENS:
            return choosing.result()
        return PendingEncoder(choosing, ReferenceEncoder(backend, "the others are not ready"))


class PendingEncoder:
    """An encoder that is still being chosen. The first text that is not short waits for it.

    Args:
        choosing: its future.
        reference: for short texts until then.
    """

    def __init__(self, choosing: Future[Encoder], reference: ReferenceEncoder) -> None:
        self._choosing = choosing
        self._reference = reference
        self._process = os.getpid()
        self._chosen: Encoder | None = None

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `Encoder.encode`."""
        encoder = self._chosen
        if encoder is None:
            waits = len(text) > _SHORT or self._choosing.done()
            encoder = self.chosen() if waits else self._reference
        return encoder.encode(text, add_special_tokens=add_special_tokens)

    def stats(self) -> EncoderStats:
        """See `Encoder.stats`."""
        return self.chosen().stats()

    def chosen(self) -> Encoder:
        """Wait for it."""
        if self._chosen is None:
            # The thread that chooses is not in a process that was forked meanwhile.
            lost = os.getpid() != self._process and not self._choosing.done()
            self._chosen = self._reference if lost else self._result()
        return self._chosen

    def _result(self) -> Encoder:
        try:
            return self._choosing.result()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - no request shall fail by what is only to make it fast
            _LOG.exception("no encoder could be chosen; tokenizers encodes")
            return self._reference


def _choose(  # noqa: PLR0913, PLR0917 - what was loaded, and what is wanted
    backend: tokenizers.Tokenizer,
    building: Future[Any] | None,
    declared: Mapping[str, Any],
    merged: Sequence[tokenizers.AddedToken],
    max_token_id: int,
    fast_paths: FastPaths,
) -> Encoder:
    reference = ReferenceEncoder(backend, "by choice")
    encoder: Encoder = reference
    if building is not None:
        try:
            encoder = _proved(building, backend, reference, merged)
        except _UnfitError as unfit:
            if fast_paths.encoder == EncoderChoice.FASTOKENS:
                raise ModelError(Reason.FAST_ENCODER_UNAVAILABLE, f"{unfit}.") from unfit
            _LOG.info("%s; tokenizers encodes instead", unfit)
            encoder = reference = ReferenceEncoder(backend, str(unfit))
    if fast_paths.text_cache_bytes:
        boundaries = boundary_tokens(backend, declared)
        if boundaries and may_be_cut(encoder, boundaries):
            encoder = PrefixReuse(
                encoder,
                boundaries,
                max_bytes=fast_paths.text_cache_bytes,
                shortest=_WORTH_KEEPING if encoder is reference else _WORTH_KEEPING_FAST,
                max_token_id=max_token_id,
            )
    if fast_paths.shadow_rate and encoder is not reference:
        encoder = ShadowedEncoder(encoder, reference, fast_paths.shadow_rate)
    return encoder


def _build(serialized: str) -> Any:  # noqa: ANN401 - fastokens may be absent
    import fastokens  # noqa: PLC0415 - as above

    backend = fastokens.Tokenizer.from_json_str(serialized)
    backend.encode("a b")  # the first call prepares the rest
    return backend


def _proved(
    building: Future[Any],
    backend: tokenizers.Tokenizer,
    reference: ReferenceEncoder,
    merged: Sequence[tokenizers.AddedToken],
) -> FastEncoder:
    """fastokens, if it has the reference's IDs for all probe texts."""
    try:
        fast = building.result()
        fast.add_tokens(list(merged))
    except ImportError:
        raise _UnfitError("fastokens is not installed") from None
    except BaseException as error:  # it has no one exception for what it does not support
        raise _UnfitError(f"{_engine()} cannot load this tokenizer: {error}") from error
    known = [token.content for token in backend.get_added_tokens_decoder().values()]
    count = 0
    for text in probe_texts(known):
        count += 1
        for special in (False, True):
            right = backend.encode(text, add_special_tokens=special).ids
            try:
                ids, _ = fast.encode_batch_flat([text], add_special_tokens=special)
            except BaseException as error:  # also a panic of its Rust code
                raise _UnfitError(f"{_engine()} declines {shown(text)}: {error}") from error
            if np.frombuffer(ids, "<u4").tolist() != right:
                _LOG.warning("%s has other IDs than tokenizers for %r", _engine(), text)
                raise _UnfitError(f"{_engine()} has other IDs for the probe text {shown(text)}")
    why = f"has the IDs of tokenizers {tokenizers.__version__} for {count} probe texts"
    return FastEncoder(fast, reference, _engine(), why)


def _engine() -> str:
    return f"fastokens {importlib.metadata.version('fastokens')}"
