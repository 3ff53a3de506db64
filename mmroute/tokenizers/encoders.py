"""Encoders of text: the reference, and a faster one for tokenizers where it proved itself equal."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tokenizers

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.token_ids import TokenIds, as_token_ids

_MIN_CHARS_OF_A_BATCH = 4096


class Encoder(Protocol):
    """Encodes text. Its answers never change; safe to share between threads."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `mmroute.tokenizers.Codec.encode`."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """The IDs of a text without BOS and the like, and the places where it can be cut."""

    def stats(self) -> EncoderStats:
        """The encoder in use, and its counters."""


class ReferenceEncoder:
    """The library `tokenizers`, as the engine runs it."""

    def __init__(self, backend: tokenizers.Tokenizer, why: str) -> None:
        self._backend = backend
        self._why = why

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        try:
            if len(text) < _MIN_CHARS_OF_A_BATCH:
                encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
            else:  # the same IDs; unlike `encode`, this call releases the GIL
                (encoding,) = self._backend.encode_batch_fast(
                    [text], add_special_tokens=add_special_tokens
                )
        except TypeError:  # how `tokenizers` reports text that is not valid Unicode
            raise ValueError(
                "the text holds a lone surrogate, which is not valid Unicode"
            ) from None
        except Exception as error:  # the vocabulary lacks the token it names as unknown
            raise ValueError(f"tokenizers cannot encode the text: {error}") from error
        return as_token_ids(encoding.ids)

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self.encode(text, add_special_tokens=False), []

    def stats(self) -> EncoderStats:
        return EncoderStats(f"tokenizers {tokenizers.__version__}", self._why)


class FastEncoder:
    """fastokens, for a tokenizer on which it gave the reference's IDs for all probe texts."""

    def __init__(self, backend: Any, reference: ReferenceEncoder, engine: str, why: str) -> None:
        self._encode = backend.encode_batch_flat
        self._reference = reference
        self._engine = engine
        self._why = why

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        try:
            ids, _ = self._encode([text], add_special_tokens=add_special_tokens)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a panic of its native code is no Exception
            return self._reference.encode(text, add_special_tokens=add_special_tokens)
        return np.frombuffer(ids, dtype="<u4")

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self.encode(text, add_special_tokens=False), []

    def stats(self) -> EncoderStats:
        return EncoderStats(self._engine, self._why)
