"""A `tokenizers.Tokenizer` behind the protocol of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import tokenizers
from tokenizers import models, pre_tokenizers

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoders import Encoder, ReferenceEncoder
from mmroute.tokenizers.fewest_tokens import FewestTokens

_MIN_TOKENS_OF_A_BATCH: Final = 1 << 14
# Normalizers that change a text only by NFC and at spaces.
_COMPOSING: Final = frozenset({"NFC", "Prepend", "Replace"})
_BYTE_LEVEL: Final = frozenset(pre_tokenizers.ByteLevel.alphabet())
_BYTE_TOKENS: Final = frozenset(f"<0x{byte:02X}>" for byte in range(0x100))


class _VocabularyFacts(NamedTuple):
    """The facts about a whole vocabulary; see `Tokenizer`."""

    max_token_id: int
    max_chars_per_token: int
    fewest_tokens: FewestTokens | None


class HfTokenizer:
    """A tokenizer of the library `tokenizers`. Immutable: no token is added to it any more."""

    reads_special_tokens: Final = True
    chat_encoder: Final = None

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        encoder: Encoder | None = None,
        *,
        bos_token_id: int | None = None,
        named_tokens: tuple[str, ...] = (),
        template_tokens: Mapping[str, str] | None = None,
        joins_pieces: bool = False,
        verbatim: Mapping[int, str] | None = None,
        vocabulary: object = None,
    ) -> None:
        added = backend.get_added_tokens_decoder()
        self.backend = backend
        self.encoder = encoder or ReferenceEncoder(backend, "the only one for this format")
        self.bos_token_id = bos_token_id
        self.named_tokens = named_tokens
        self.template_tokens = template_tokens or {}
        self.special_tokens = {t.content: i for i, t in sorted(added.items()) if t.special}
        self.joins_pieces = joins_pieces
        self._vocabulary = vocabulary
        self._verbatim = verbatim or {}
        self._special_ids = frozenset(self.special_tokens.values())

    @cached_property
    def _facts(self) -> _VocabularyFacts:
        # Few requests need it, and for 150,000 tokens it takes 80 ms.
        given, self._vocabulary = self._vocabulary, None  # its text is a file in memory
        vocabulary = msgspec.json.decode(given) if isinstance(given, msgspec.Raw) else given
        if not isinstance(vocabulary, dict):
            vocabulary = self.backend.get_vocab(with_added_tokens=False)
        added = self.backend.get_added_tokens_decoder()
        texts = [*vocabulary, *(token.content for token in added.values())]
        keeps_bytes = _keeps_bytes(self.backend, vocabulary)
        return _VocabularyFacts(
            max_token_id=max(max(vocabulary.values(), default=-1), max(added, default=-1)),
            max_chars_per_token=max(map(len, texts), default=0),
            fewest_tokens=FewestTokens(texts) if keeps_bytes else None,
        )

    @property
    def max_token_id(self) -> int:
        return self._facts.max_token_id

    @property
    def vocab_size(self) -> int:
        return self.max_token_id + 1

    @property
    def max_chars_per_token(self) -> int:
        return self._facts.max_chars_per_token

    @property
    def fewest_tokens(self) -> FewestTokens | None:
        return self._facts.fewest_tokens

    def encoder_stats(self) -> EncoderStats:
        """The encoder in use and its counters; waits until the encoder is chosen."""
        return self.encoder.stats()

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        return self.encoder.encode(text, add_special_tokens=add_special_tokens)

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        return self.encoder.encode_cut(text)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        if not self._verbatim:
            text: str
            if len(ids) > _MIN_TOKENS_OF_A_BATCH:  # unlike `decode`, this releases the GIL
                (text,) = self.backend.decode_batch(
                    [list(ids)], skip_special_tokens=skip_special_tokens
                )
            else:
                text = self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
            return text
        kept = [i for i in ids if i not in self._special_ids] if skip_special_tokens else ids
        parts = []
        for is_verbatim, run in groupby(kept, self._verbatim.__contains__):
            if is_verbatim:
                parts += [self._verbatim[i] for i in run]
            else:
                parts.append(self.backend.decode(list(run), skip_special_tokens=False))
        return "".join(parts)

    def token_id(self, token: str) -> int | None:
        known: int | None = self.backend.token_to_id(token)
        return known

    def token(self, token_id: int) -> str | None:
        known: str | None = self.backend.id_to_token(token_id)
        return known

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]]:
        text.encode()  # raises ValueError for a lone surrogate
        offsets: list[tuple[int, int]] = self.backend.encode(
            text, add_special_tokens=add_special_tokens
        ).offsets
        return offsets


def joins_pieces(decoder: Any) -> bool:
    """Whether the `decoder` of a tokenizer.json joins pieces.

    >>> joins_pieces({"type": "ByteLevel"}), joins_pieces({"type": "WordPiece"})
    (True, False)
    """
    match decoder:
        case {"type": "ByteLevel" | "ByteFallback" | "Fuse"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(pattern)}}:
            return len(pattern) == 1  # a longer one could match across two tokens
        case {"type": "Strip", "start": 0 | 1, "stop": 0}:
            return True  # it strips only the text of the first token
        case {"type": "Sequence", "decoders": [_, *_] as parts}:
            return all(map(joins_pieces, parts))
    return False


def _keeps_bytes(backend: tokenizers.Tokenizer, vocabulary: Mapping[str, int]) -> bool:
    """Whether each byte of a normalized text, but for whitespace, is in exactly one token."""
    model = backend.model
    if not isinstance(model, models.BPE) or backend.truncation is not None:
        return False
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    split = b"" if backend.pre_tokenizer is None else backend.pre_tokenizer.__getstate__()
    if b'"Removed"' in split or b"CharDelimiterSplit" in split:
        return False
    byte_level = b'"ByteLevel"' in split and vocabulary.keys() >= _BYTE_LEVEL
    by_fallback = model.byte_fallback and vocabulary.keys() >= _BYTE_TOKENS
    return (byte_level or by_fallback) and _normalizer_composes_only(backend)


def _normalizer_composes_only(backend: tokenizers.Tokenizer) -> bool:
    if backend.normalizer is None:
        return True
    described = msgspec.json.decode(backend.normalizer.__getstate__())
    return all(
        step["type"] in _COMPOSING and step.get("pattern", {"String": " "}) == {"String": " "}
        for step in described.get("normalizers", [described])
    )
