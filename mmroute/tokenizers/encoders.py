"""Text to token IDs: the reference, and one that is faster where it has proved itself equal."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tokenizers

from mmroute.geometry import TokenIds
from mmroute.reuse.fast_paths import EncoderStats

_LONG = 4096  # characters


class Encoder(Protocol):
    """Encodes text. Its answers never change; safe to share between threads."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `mmroute.tokenizers.Codec.encode`."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """The IDs of a text as it is, and where it can be cut.

        Returns:
            The IDs; and the characters and the IDs before each place behind which any text has
            IDs of its own. There are none of these where that is not proved.
        """

    def stats(self) -> EncoderStats:
        """Who encodes, and counters."""


class ReferenceEncoder:
    """`tokenizers`, as the engine runs it."""

    def __init__(self, backend: tokenizers.Tokenizer, why: str) -> None:
        self._backend = backend
        self._why = why

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        try:
            if len(text) < _LONG:
                encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
            else:  # the same IDs; other threads run meanwhile, as `encode` does not let them
                (encoding,) = self._backend.encode_batch_fast(
                    [text], add_special_tokens=add_special_tokens
                )
        except TypeError:  # how `tokenizers` reports text that is not valid Unicode
            raise ValueError(
                "the text holds a lone surrogate, which is not valid Unicode"
            ) from None
        except Exception as error:  # of a vocabulary without its own unknown token
            raise ValueError(f"tokenizers cannot encode the text: {error}") from error
        return np.array(encoding.ids, dtype=np.uint32)

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self.encode(text, add_special_tokens=False), []

    def stats(self) -> EncoderStats:
        return EncoderStats(f"tokenizers {tokenizers.__version__}", self._why)


class FastEncoder:
    """fastokens, for a tokenizer whose IDs it was seen to give.

    Args:
        backend: a `fastokens.Tokenizer`.
        reference: for what fastokens declines, such as a text beyond its regular expressions'
            limits.
        engine: its name and version.
        why: how it was chosen, in words.
    """

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
        except BaseException:  # noqa: BLE001 - also a panic of its Rust code: the reference decides
            return self._reference.encode(text, add_special_tokens=add_special_tokens)
        return np.frombuffer(ids, dtype="<u4")

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self.encode(text, add_special_tokens=False), []

    def stats(self) -> EncoderStats:
        return EncoderStats(self._engine, self._why)
