"""What was encoded stays encoded: only the end of a known prompt is encoded anew.

A tokenizer cuts a text at its added tokens before it does anything else, so that the pieces
between them are encoded on their own. Behind such a token the IDs of a text do not depend on
what follows, and those of the rest not on what came before. That holds for tokens that are
matched as they are written and that no other added token can overlap; and only if no part of the
pipeline asks where in the text it is.

Source: tokenizers 0.23.3 ``tokenizer/added_vocabulary.rs`` (`extract_and_normalize`) and
``pre_tokenizers/metaspace.rs``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import tokenizers

from mmroute.geometry import TokenIds
from mmroute.reuse.fast_paths import EncoderStats
from mmroute.reuse.prefix_cache import PrefixCache, PrefixHashes, num_shared
from mmroute.tokenizers.encoders import Encoder
from mmroute.tokenizers.probe_texts import probe_texts

_SEPARATOR: Final = "\0"
_PROBED: Final = 64
_FEW: Final = 256
_BYTES_PER_END: Final = 80  # two Python integers and their places in tuples


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A prompt that was encoded.

    Attributes:
        text: all of it.
        token_ids: up to behind its last boundary token, shape (n,).
        text_ends: behind each boundary token, in characters.
        id_ends: the same in IDs.
    """

    text: str
    token_ids: TokenIds
    text_ends: tuple[int, ...]
    id_ends: tuple[int, ...]


_NOTHING: Final = _Known("", np.empty(0, np.uint32), (), ())


class PrefixReuse:
    """An encoder that keeps the beginnings of prompts, and encodes what is new.

    Args:
        encoder: the one that encodes.
        boundaries: IDs and texts of the tokens behind which a text may be cut.
        max_bytes: of all that is kept.
        shortest: characters of a text that is worth keeping; a shorter one is encoded in less
            time than it takes to look for it and to keep it.
    """

    def __init__(
        self, encoder: Encoder, boundaries: Mapping[int, str], *, max_bytes: int, shortest: int
    ) -> None:
        self._encoder = encoder
        self._boundaries = dict(boundaries)
        # One more than there are, for all IDs beyond them.
        self._is_boundary = np.zeros(max(boundaries, default=0) + 2, np.bool_)
        self._is_boundary[list(boundaries)] = True
        self._shortest = shortest
        self._cache: PrefixCache[_Known] = PrefixCache(max_bytes)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        if add_special_tokens or len(text) < self._shortest:
            return self._encoder.encode(text, add_special_tokens=add_special_tokens)
        known, hashes = self._cache.find(text)
        shared = num_shared(known.text_ends, known.text, text) if known is not None else 0
        if known is None or not shared:
            self._cache.count(0)
            ids = self._encoder.encode(text, add_special_tokens=False)
            self._keep(_NOTHING, 0, text, ids, hashes)
        else:
            at = known.text_ends[shared - 1]
            self._cache.count(at)
            rest = self._encoder.encode(text[at:], add_special_tokens=False)
            ids = np.concatenate((known.token_ids[: known.id_ends[shared - 1]], rest))
            self._keep(known, shared, text, ids, hashes)
        ids.setflags(write=False)
        return ids[:]  # a view cannot be made writable again: what is kept is kept

    def stats(self) -> EncoderStats:
        return self._encoder.stats()._replace(reuse=self._cache.stats())

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """See `Encoder.encode_cut`: behind each boundary token. Nothing is looked for or kept."""
        ids = self._encoder.encode(text, add_special_tokens=False)
        return ids, self._cuts(text, ids)

    def _cuts(self, text: str, ids: TokenIds) -> list[tuple[int, int]]:
        found = self._boundaries_in(ids)
        for token_id, count in Counter([token_id for _, token_id in found]).items():
            if text.count(self._boundaries[token_id]) != count:
                return []  # an ID that has come about in another way than by its text
        ends = []
        text_at = 0
        for id_at, token_id in found:
            token = self._boundaries[token_id]
            text_at = text.index(token, text_at) + len(token)
            ends.append((text_at, id_at + 1))
        return ends

    def _keep(
        self, known: _Known, shared: int, text: str, ids: TokenIds, hashes: PrefixHashes
    ) -> None:
        """Keep a prompt, if it has a boundary behind those that are shared with a known one."""
        text_at = known.text_ends[shared - 1] if shared else 0
        id_at = known.id_ends[shared - 1] if shared else 0
        ends = self._cuts(text[text_at:], ids[id_at:])
        if not ends:
            return
        text_ends = (*known.text_ends[:shared], *[text_at + end for end, _ in ends])
        id_ends = (*known.id_ends[:shared], *[id_at + end for _, end in ends])
        size = sys.getsizeof(text) + ids.nbytes + _BYTES_PER_END * len(id_ends)
        known = _Known(text, ids[: id_ends[-1]], text_ends, id_ends)
        self._cache.put(known, hashes, text, size=size)

    def _boundaries_in(self, ids: TokenIds) -> list[tuple[int, int]]:
        """The place and the ID of each boundary token."""
        if len(ids) <= _FEW:  # the overhead of numpy is more than all of them cost
            return [pair for pair in enumerate(ids.tolist()) if pair[1] in self._boundaries]
        places = self._is_boundary.take(ids, mode="clip").nonzero()[0]
        return list(zip(places.tolist(), ids[places].tolist(), strict=True))


def boundary_tokens(backend: tokenizers.Tokenizer, declared: Mapping[str, Any]) -> dict[int, str]:
    """The tokens of a complete backend behind which a text may be cut: their IDs and texts."""
    if _asks_for_the_place(declared.get("pre_tokenizer")) or declared["model"].get("dropout"):
        return {}
    tokens = backend.get_added_tokens_decoder()
    if any(token.single_word for token in tokens.values()):  # looks at what is before it
        return {}
    everything = _SEPARATOR.join([token.content for token in tokens.values()])
    endings = {t.content[at:] for t in tokens.values() for at in range(1, len(t.content))}
    return {
        token_id: token.content
        for token_id, token in tokens.items()
        if not (token.normalized or token.lstrip or token.rstrip)
        and token.content.split() == [token.content]  # a neighbour could strip a space
        and token.content != declared["model"].get("unk_token")
        # In no other token, and none ends in what this one begins with.
        and everything.count(token.content) == 1
        and not any(token.content[:at] in endings for at in range(1, len(token.content)))
    }


def _asks_for_the_place(pre_tokenizer: object) -> bool:
    """Whether the beginning of the text is another place than the beginning of a piece."""
    if isinstance(pre_tokenizer, Mapping):
        if pre_tokenizer.get("prepend_scheme") == "first":
            return True
        return any(map(_asks_for_the_place, pre_tokenizer.values()))
    return isinstance(pre_tokenizer, list) and any(map(_asks_for_the_place, pre_tokenizer))


def may_be_cut(encoder: Encoder, boundaries: Mapping[int, str]) -> bool:
    """Whether texts cut behind these tokens have the IDs of the whole, on probe texts."""

    def encode(text: str) -> list[int]:
        ids: list[int] = encoder.encode(text, add_special_tokens=False).tolist()
        return ids

    tokens = list(boundaries.values())
    texts = probe_texts(tokens[:_PROBED])
    for number, (before, behind) in enumerate(pairwise(texts)):
        start = before + tokens[number % len(tokens)]
        if encode(start) + encode(behind) != encode(start + behind):
            return False
    return True
