"""The public class of a loaded tokenizer, the same for every format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

import numpy as np

from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import check_one_template, default_template
from mmroute.model_directory import ModelFiles
from mmroute.text.codec import Loaded
from mmroute.text.fingerprint import fingerprint
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Codec


@final
class LoadedTokenizer:
    """A tokenizer of any format. Immutable, and safe to share between threads.

    Attributes:
        source: the name or path that the caller gave.
        format: the format of its files, such as ``tokenizer.json`` or ``tekken``.
        notes: sentences that say which engine has these IDs, and what is not promised. Empty if
            they are the IDs of the engine that mmroute was checked with.
        files: the files that decide its answers, by name; empty for a tokenizer that was not
            loaded from files.
        pieces: the texts of single tokens, for decoding streams (`mmroute.text`); None if the
            decoder does not join them.
    """

    __slots__ = ("_codec", "_embedded_template", "_model_files", "files", "format", "notes",
                 "pieces", "source")  # fmt: skip

    def __init__(
        self,
        source: str,
        loaded: Loaded,
        *,
        files: Mapping[str, Path] | None = None,
        model_files: ModelFiles | None = None,
    ) -> None:
        self.source: Final = source
        self.format: Final = loaded.format
        self.notes: Final = loaded.notes
        self.pieces: Final = loaded.pieces
        self.files: Final[Mapping[str, Path]] = MappingProxyType(dict(files or {}))
        self._codec: Final[Codec] = loaded.codec
        self._embedded_template = loaded.chat_template
        self._model_files = model_files

    def __repr__(self) -> str:
        return f"<LoadedTokenizer {self.source!r}: {self.format}, {self.vocab_size} IDs>"

    @property
    def vocab_size(self) -> int:
        """The largest ID plus 1: the length of a table with a row for every ID."""
        return self._codec.vocab_size

    @property
    def max_token_id(self) -> int:
        """The largest ID."""
        return self.vocab_size - 1

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The tokens that `decode` leaves out with `skip_special_tokens`, and their IDs."""
        return MappingProxyType(self._codec.special_tokens)

    @property
    def fingerprint(self) -> str | None:
        """A hash of `files`, the same on every machine; None where there are none.

        See `mmroute.text.fingerprint`. The files are read each time.
        """
        return fingerprint(self.files) if self.files else None

    @property
    def chat_template(self) -> str | None:
        """The text of the chat template for requests without tools, or None.

        Raises:
            ModelError: `malformed_file`, or `invalid_config_field` for several named templates.
        """
        if self._embedded_template is not None or self._model_files is None:
            return self._embedded_template
        check_one_template(self._model_files)
        found = default_template(self._model_files)
        return None if found is None else ChatTemplate.compile(*found).source

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        """Token IDs of a text, shape (n,), uint32.

        Args:
            text: the text to encode. In most formats special tokens in it become their IDs.
            add_special_tokens: if true, add the tokens that the tokenizer puts around a sequence,
                such as BOS.

        Raises:
            ValueError: the text holds a lone surrogate, which is not valid Unicode; or tiktoken
                cannot cut it (a run of a million spaces).
        """
        return self._codec.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = False
    ) -> list[TokenIds]:
        """Token IDs of each text; see `encode`."""
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    def offsets(
        self, text: str, *, add_special_tokens: bool = False
    ) -> list[tuple[int, int]] | None:
        """The start and end of each token of `encode` in the text, in characters.

        None if the tokenizer's library has no offsets. A character that several tokens make up
        belongs to each of them.
        """
        return self._codec.offsets(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int] | TokenIds, *, skip_special_tokens: bool = False) -> str:
        """The text of token IDs; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an ID is negative, or not below `vocab_size`.
        """
        return self._codec.decode(self._checked(ids), skip_special_tokens=skip_special_tokens)

    def convert_ids_to_tokens(self, ids: Sequence[int] | TokenIds) -> list[str]:
        """The vocabulary entries of IDs, as the format writes them (``Ġhello``, ``▁hello``).

        An ID in a gap of the vocabulary, which has no entry, becomes an empty string.

        Raises:
            ValueError: an ID is negative, or not below `vocab_size`.
        """
        return [self._codec.token(token_id) or "" for token_id in self._checked(ids)]

    def token_id(self, token: str) -> int | None:
        """The ID of a vocabulary entry as the format writes it, or None."""
        return self._codec.token_id(token)

    def token(self, token_id: int) -> str | None:
        """The vocabulary entry of an ID, or None."""
        return self._codec.token(token_id) if 0 <= token_id < self.vocab_size else None

    def _checked(self, ids: Sequence[int] | TokenIds) -> list[int]:
        listed: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if listed and not (min(listed) >= 0 and max(listed) < self.vocab_size):
            wrong = next(i for i in listed if not 0 <= i < self.vocab_size)
            raise ValueError(f"token ID {wrong} is not in 0..{self.vocab_size - 1}")
        return listed
