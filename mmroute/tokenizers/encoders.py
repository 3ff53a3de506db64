"""Encoders of text: the reference, a faster one that proved itself equal, and one that caches.

The cache: of a prompt with a known beginning only the end is encoded.

A tokenizer cuts a text at its added tokens before it does anything else, and encodes each piece
between them on its own. So the IDs up to such a token do not depend on the text after it, nor the
IDs after it on the text before. This holds for tokens that are matched as they are written and that
no other added token can overlap. It holds only if no part of the pipeline depends on its position
in the text.

Source: tokenizers 0.23.3 ``tokenizer/added_vocabulary.rs`` (`extract_and_normalize`) and
``pre_tokenizers/metaspace.rs``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import tokenizers

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.reuse.prefix_cache import PrefixCache, PrefixHashes, num_shared
from mmroute.token_ids import TokenIds, as_token_ids
from mmroute.tokenizers.probe_texts import probe_texts

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


_SEPARATOR: Final = "\0"
_MAX_PROBED_TOKENS: Final = 64
_BYTES_PER_END: Final = 80  # two Python integers and their places in tuples


@dataclass(frozen=True, slots=True, eq=False)
class _EncodedPrompt:
    """A prompt that was encoded."""

    text: str  # the whole prompt
    token_ids: TokenIds  # the prompt's IDs up to and with its last boundary token, shape (n,)
    text_ends: tuple[int, ...]  # the position after each boundary token, in characters
    id_ends: tuple[int, ...]  # the position after each boundary token, in IDs


_NO_PROMPT: Final = _EncodedPrompt("", np.empty(0, np.uint32), (), ())


class CachingEncoder:
    """An encoder that caches prompts, and encodes only what follows a cached beginning."""

    def __init__(
        self, encoder: Encoder, boundaries: Mapping[int, str], *, max_bytes: int, min_chars: int
    ) -> None:
        self._encoder = encoder
        self._boundaries = dict(boundaries)
        # The last entry stands for all IDs beyond those of the boundaries.
        self._is_boundary = np.zeros(max(boundaries, default=0) + 2, np.bool_)
        self._is_boundary[list(boundaries)] = True
        self._min_chars = min_chars
        self._cache: PrefixCache[_EncodedPrompt] = PrefixCache(max_bytes)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        if add_special_tokens or len(text) < self._min_chars:
            return self._encoder.encode(text, add_special_tokens=add_special_tokens)
        known, hashes = self._cache.find(text)
        shared = num_shared(known.text_ends, known.text, text) if known is not None else 0
        if known is None or not shared:
            self._cache.count(0)
            ids = self._encoder.encode(text, add_special_tokens=False)
            self._keep(_NO_PROMPT, 0, text, ids, hashes)
        else:
            at = known.text_ends[shared - 1]
            self._cache.count(at)
            rest = self._encoder.encode(text[at:], add_special_tokens=False)
            ids = np.concatenate((known.token_ids[: known.id_ends[shared - 1]], rest))
            self._keep(known, shared, text, ids, hashes)
        ids.setflags(write=False)
        return ids[:]  # a view of a read-only array cannot be made writable by the caller

    def stats(self) -> EncoderStats:
        return self._encoder.stats()._replace(reuse=self._cache.stats())

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """See `Encoder.encode_cut`: a cut is after each boundary token. The cache is not used."""
        ids = self._encoder.encode(text, add_special_tokens=False)
        return ids, self._cuts(text, ids)

    def _cuts(self, text: str, ids: TokenIds) -> list[tuple[int, int]]:
        boundaries = self._boundaries_in(ids)
        for token_id, count in Counter([token_id for _, token_id in boundaries]).items():
            if text.count(self._boundaries[token_id]) != count:
                return []  # some other text became a boundary's ID, too
        ends = []
        text_at = 0
        for id_at, token_id in boundaries:
            token = self._boundaries[token_id]
            text_at = text.index(token, text_at) + len(token)
            ends.append((text_at, id_at + 1))
        return ends

    def _keep(
        self, known: _EncodedPrompt, shared: int, text: str, ids: TokenIds, hashes: PrefixHashes
    ) -> None:
        """Cache a prompt, if it has more boundaries than it shares with the known prompt."""
        text_at = known.text_ends[shared - 1] if shared else 0
        id_at = known.id_ends[shared - 1] if shared else 0
        ends = self._cuts(text[text_at:], ids[id_at:])
        if not ends:
            return
        text_ends = (*known.text_ends[:shared], *[text_at + end for end, _ in ends])
        id_ends = (*known.id_ends[:shared], *[id_at + end for _, end in ends])
        size = sys.getsizeof(text) + ids.nbytes + _BYTES_PER_END * len(id_ends)
        known = _EncodedPrompt(text, ids[: id_ends[-1]], text_ends, id_ends)
        self._cache.put(known, hashes, text, size=size)

    def _boundaries_in(self, ids: TokenIds) -> list[tuple[int, int]]:
        """The index and the ID of each boundary token."""
        places = self._is_boundary.take(ids, mode="clip").nonzero()[0]
        return list(zip(places.tolist(), ids[places].tolist(), strict=True))


def boundary_tokens(backend: tokenizers.Tokenizer, declared: Mapping[str, Any]) -> dict[int, str]:
    """The boundary tokens, after which a text may be cut: texts by ID."""
    if _depends_on_position(declared.get("pre_tokenizer")) or declared["model"].get("dropout"):
        return {}
    tokens = backend.get_added_tokens_decoder()
    if any(token.single_word for token in tokens.values()):  # depends on the characters beside it
        return {}
    everything = _SEPARATOR.join([token.content for token in tokens.values()])
    endings = {t.content[at:] for t in tokens.values() for at in range(1, len(t.content))}
    return {
        token_id: token.content
        for token_id, token in tokens.items()
        if not (token.normalized or token.lstrip or token.rstrip)
        and token.content.split() == [token.content]  # a neighbour could strip a space
        and token.content != declared["model"].get("unk_token")
        # No other token contains this one, or ends with a beginning of it.
        and everything.count(token.content) == 1
        and not any(token.content[:at] in endings for at in range(1, len(token.content)))
    }


def _depends_on_position(pre_tokenizer: object) -> bool:
    """Whether a piece at the beginning of the text is encoded otherwise than another piece."""
    if isinstance(pre_tokenizer, Mapping):
        if pre_tokenizer.get("prepend_scheme") == "first":
            return True
        return any(map(_depends_on_position, pre_tokenizer.values()))
    return isinstance(pre_tokenizer, list) and any(map(_depends_on_position, pre_tokenizer))


def may_be_cut(encoder: Encoder, boundaries: Mapping[int, str]) -> bool:
    """Whether probe texts have the same IDs if they are cut after these tokens."""

    def encode(text: str) -> list[int]:
        ids: list[int] = encoder.encode(text, add_special_tokens=False).tolist()
        return ids

    tokens = list(boundaries.values())
    texts = probe_texts(tokens[:_MAX_PROBED_TOKENS])
    for number, (before, behind) in enumerate(pairwise(texts)):
        start = before + tokens[number % len(tokens)]
        if encode(start) + encode(behind) != encode(start + behind):
            return False
    return True
