"""Mistral's own tokenizer files, ``tekken.json`` and ``tokenizer.model.vN``, by mistral-common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, Tokenizer
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.errors import ModelError, Reason
from mmroute.geometry import TokenIds
from mmroute.tokenizers.codec import Loaded
from mmroute.tokenizers.mistral import decode_tekken
from mmroute.tokenizers.pieces import Pieces

__all__ = ["MistralCodec", "load_mistral_file"]


@dataclass(frozen=True, slots=True)
class MistralCodec:
    """mistral-common's text encoder as a `Codec`. Special tokens in a text stay ordinary text.

    Attributes:
        backend: a tekken or a SentencePiece tokenizer.
    """

    backend: Tokenizer
    vocab_size: int = field(init=False)
    special_tokens: Mapping[str, int] = field(init=False)
    _vocabulary: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pieces = self.backend.vocab()
        special = {pieces[i]: i for i in sorted(self.backend.special_ids)}
        # Several tokens that are no UTF-8 on their own are written the same way.
        first = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
        object.__setattr__(self, "vocab_size", self.backend.n_words)
        object.__setattr__(self, "special_tokens", special)
        object.__setattr__(self, "_vocabulary", first | special)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `Codec.encode`."""
        text.encode()  # tekken would take a lone surrogate for U+FFFD
        return np.array(self.backend.encode(text, bos=add_special_tokens, eos=False), np.uint32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """See `Codec.decode`."""
        if isinstance(self.backend, Tekkenizer):
            return decode_tekken(self.backend, ids, skip_special_tokens=skip_special_tokens)
        if skip_special_tokens:
            return self.backend.decode(list(ids), special_token_policy=SpecialTokenPolicy.IGNORE)
        # The other kind would keep the text as pieces as well (``▁Hello``), not only the tokens.
        parts = []
        for special, run in groupby(ids, self.backend.is_special):
            if special:
                parts += [self.backend.id_to_piece(i) for i in run]
            else:
                parts.append(
                    self.backend.decode(list(run), special_token_policy=SpecialTokenPolicy.IGNORE)
                )
        return "".join(parts)

    def token_id(self, token: str) -> int | None:
        """See `Codec.token_id`."""
        return self._vocabulary.get(token)

    def token(self, token_id: int) -> str | None:
        """See `Codec.token`."""
        return self.backend.id_to_piece(token_id)

    def offsets(self, text: str, *, add_special_tokens: bool) -> None:
        """See `Codec.offsets`; mistral-common has none."""


def load_mistral_file(path: Path, *, tekken: bool) -> Loaded:
    """Load one file.

    Args:
        path: the file.
        tekken: which of the two kinds it is.

    Raises:
        ModelError: `malformed_file`; `unsupported_tokenizer` if a library is missing.
    """
    try:
        backend = Tekkenizer.from_file(path) if tekken else SentencePieceTokenizer(path)
    except ImportError as error:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER, f"{path}: {error}: pip install 'mmroute[formats]'."
        ) from error
    except Exception as error:  # mistral-common has no one exception for a bad file
        raise ModelError(Reason.MALFORMED_FILE, f"{path} cannot be loaded: {error!r}") from error
    if backend.bos_id < 0:
        raise ModelError(Reason.MALFORMED_FILE, f"{path} has no token that begins a sequence.")
    codec = MistralCodec(backend)
    if not tekken:
        return Loaded("mistral sentencepiece", codec)
    return Loaded("tekken", codec, pieces=Pieces(codec.decode, codec.vocab_size - 1))
