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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tokenizers

from mmroute.fast_paths import EncoderStats
from mmroute.geometry import TokenIds
from mmroute.prefix_index import PrefixIndex
from mmroute.tokenizers.encoders import Encoder
from mmroute.tokenizers.probe_texts import probe_texts

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["PrefixReuse", "boundary_tokens", "may_be_cut"]

_SHORTEST: Final = 1024  # characters; below, encoding costs less than looking
_SEPARATOR: Final = "\0"
_PROBED: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The beginning of a prompt, up to behind a boundary token.

    Attributes:
        text: as UTF-8.
        token_ids: of it, shape (n,).
        text_ends: behind each boundary token, in bytes.
        id_ends: the same in IDs.
    """

    text: bytes
    token_ids: TokenIds
    text_ends: npt.NDArray[np.intp]
    id_ends: npt.NDArray[np.intp]

    def shared_with(self, text: bytes) -> _Known:
        """The part of this, up to a boundary, with which another text begins as well."""
        if text.startswith(self.text):
            return self
        length = min(len(self.text), len(text))
        ours, theirs = (np.frombuffer(t, np.uint8, length) for t in (self.text, text))
        differ = np.flatnonzero(ours != theirs)
        common = differ[0] if len(differ) else length
        count = int(np.searchsorted(self.text_ends, common, side="right"))
        if not count:
            return _NOTHING
        return _Known(
            self.text[: self.text_ends[count - 1]],
            self.token_ids[: self.id_ends[count - 1]],
            self.text_ends[:count],
            self.id_ends[:count],
        )


_NO_ENDS: Final = np.empty(0, np.intp)
_NOTHING: Final = _Known(b"", np.empty(0, np.uint32), _NO_ENDS, _NO_ENDS)


class PrefixReuse:
    """An encoder that keeps the beginnings of prompts, and encodes what is new.

    Args:
        encoder: the one that encodes.
        boundaries: IDs and texts of the tokens behind which a text may be cut.
        max_bytes: of all that is kept.
    """

    def __init__(self, encoder: Encoder, boundaries: Mapping[int, str], max_bytes: int) -> None:
        self._encoder = encoder
        self._text_of = {token_id: text.encode() for token_id, text in boundaries.items()}
        self._is_boundary = np.zeros(max(boundaries) + 2, np.bool_)  # the last: any other ID
        self._is_boundary[list(boundaries)] = True
        self._index: PrefixIndex[_Known] = PrefixIndex(max_bytes)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `Encoder.encode`."""
        if add_special_tokens or len(text) < _SHORTEST:
            return self._encoder.encode(text, add_special_tokens=add_special_tokens)
        data = text.encode()
        found, marks = self._index.find(data)
        known = _NOTHING if found is None else found.shared_with(data)
        at = len(known.text)
        self._index.count(at)
        rest = self._encoder.encode(data[at:].decode() if at else text, add_special_tokens=False)
        ids = np.concatenate((known.token_ids, rest)) if at else rest
        self._keep(known, data, ids, marks)
        return ids

    def stats(self) -> EncoderStats:
        """See `Encoder.stats`."""
        return replace(self._encoder.stats(), reuse=self._index.stats())

    def _keep(self, known: _Known, data: bytes, ids: TokenIds, marks: tuple[int, ...]) -> None:
        """Keep a prompt up to its last boundary, if it has one behind what is known."""
        start = len(known.token_ids)
        last = len(self._is_boundary) - 1
        new = np.flatnonzero(self._is_boundary[np.minimum(ids[start:], last)]) + start
        if not len(new):
            return
        text_ends = []
        at = len(known.text)
        for token_id in ids[new].tolist():
            token = self._text_of[token_id]
            at = data.index(token, at) + len(token)
            text_ends.append(at)
        id_ends = new + 1
        entry = _Known(
            data[:at],
            ids[: id_ends[-1]],
            np.concatenate((known.text_ends, np.array(text_ends, np.intp))),
            np.concatenate((known.id_ends, id_ends)),
        )
        size = len(entry.text) + ids.nbytes + entry.text_ends.nbytes + entry.id_ends.nbytes
        self._index.keep(entry, marks, length=at, size=size)


def boundary_tokens(backend: tokenizers.Tokenizer, declared: Mapping[str, Any]) -> dict[int, str]:
    """The tokens behind which a text may be cut: their IDs and texts.

    Args:
        backend: with all added tokens.
        declared: the JSON it was made from.
    """
    if _asks_for_the_place(declared.get("pre_tokenizer")) or declared["model"].get("dropout"):
        return {}
    tokens = backend.get_added_tokens_decoder()
    everything = _SEPARATOR.join([token.content for token in tokens.values()])
    endings = {t.content[at:] for t in tokens.values() for at in range(1, len(t.content))}
    return {
        token_id: token.content
        for token_id, token in tokens.items()
        if not (token.normalized or token.single_word or token.lstrip or token.rstrip)
        and _is_solid(token.content)
        # In no other token, and none ends in what this one begins with.
        and everything.count(token.content) == 1
        and not any(token.content[:at] in endings for at in range(1, len(token.content)))
    }


def _is_solid(text: str) -> bool:
    """Whether it has no space in it, which a neighbour could strip."""
    return text.split() == [text]


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
