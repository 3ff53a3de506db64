"""Mistral's own tokenizer files, ``tekken.json`` and ``tokenizer.model.vN``, by mistral-common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, SpecialTokens, Tokenizer
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.errors import ModelError, Reason, malformed
from mmroute.model_directory import ModelFiles
from mmroute.token_ids import TokenIds, as_token_ids
from mmroute.tokenizers.fewest_tokens import FewestTokens
from mmroute.tokenizers.formats.mistral_chat import MistralChatEncoder, Tekken, loads_mistral_file

_FRAMING: Final = frozenset(token.value for token in (
    SpecialTokens.tool_calls, SpecialTokens.args, SpecialTokens.begin_think,
    SpecialTokens.end_think))  # fmt: skip


class MistralTokenizer:
    """mistral-common's text encoder. Special tokens in a text stay ordinary text. Immutable."""

    reads_special_tokens: Final = False

    def __init__(
        self,
        backend: Tokenizer,
        chat_encoder: MistralChatEncoder | None = None,
        template_tokens: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        tekken = isinstance(backend, Tekkenizer)
        self.backend = backend
        self.chat_encoder = chat_encoder
        self.vocab_size = backend.n_words
        self.special_tokens = {backend.id_to_piece(i): i for i in sorted(backend.special_ids)}
        self.named_tokens = tuple(self.special_tokens)
        self.template_tokens = template_tokens
        self.joins_pieces = tekken

    # Few requests need these three, and for 131,000 tokens they take 80 ms.

    @cached_property
    def max_chars_per_token(self) -> int:
        return max(map(len, self.backend.vocab()))

    @cached_property
    def fewest_tokens(self) -> FewestTokens | None:
        tekken = isinstance(self.backend, Tekkenizer)
        return FewestTokens(self.backend.vocab()) if tekken else None

    @cached_property
    def _ordinary(self) -> Mapping[str, int]:
        # Tokens that are not UTF-8 on their own share one spelling: the first of them has it.
        entries = enumerate(self.backend.vocab())
        return {entry: i for i, entry in reversed(list(entries))}

    @property
    def bos_token_id(self) -> int:
        return self.backend.bos_id

    @property
    def max_token_id(self) -> int:
        return self.vocab_size - 1

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        text.encode()  # raises for a lone surrogate, which tekken would replace by U+FFFD
        return as_token_ids(self.backend.encode(text, bos=add_special_tokens, eos=False))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """See `Codec.decode`. Tokens that frame tool calls and reasoning are always in the text."""
        if isinstance(self.backend, Tekkenizer):
            if skip_special_tokens:  # what vLLM does (`convert_ids_to_tokens`)
                first, entry = self.backend.num_special_tokens, self.backend.id_to_piece
                ids = [i for i in ids if i >= first or entry(i) in _FRAMING]
            return self.backend.decode(list(ids), special_token_policy=SpecialTokenPolicy.KEEP)
        if skip_special_tokens:
            return self.backend.decode(list(ids), special_token_policy=SpecialTokenPolicy.IGNORE)
        # The policy KEEP would return the text as pieces, too (``▁Hello``), not only the tokens.
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
        special = self.special_tokens.get(token)
        return self._ordinary.get(token) if special is None else special

    def token(self, token_id: int) -> str | None:
        return self.backend.id_to_piece(token_id) if token_id < self.vocab_size else None

    def offsets(self, text: str, *, add_special_tokens: bool) -> None:
        """None: mistral-common has no offsets."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """See `Tokenizer.encode_cut`. There are no cuts: none are proved for mistral-common."""
        return self.encode(text, add_special_tokens=False), []

    def encoder_stats(self) -> None:
        """None: there is one encoder and no cache."""


def load_backend(path: Path, *, tekken: bool) -> Tokenizer:
    """mistral-common's tokenizer of a file. `tekken` is of its two formats."""
    with loads_mistral_file(path):
        backend = Tekken.from_file(path) if tekken else SentencePieceTokenizer(path)
    if backend.bos_id < 0:
        raise malformed(f"{path} has no BOS token.")
    return backend


def load_mistral_model(files: ModelFiles, text_cache_bytes: int) -> MistralTokenizer:
    """Load ``tekken.json``, or else ``tokenizer.model.vN``, with mistral-common's chat encoder."""
    names = files.names(("tekken.json", "tokenizer.model.v*"))
    if not names:
        raise ModelError(
            Reason.MISSING_FILE, f"{files.name}: {files.path('tekken.json')} is missing."
        )
    if len(names) > 1 and "tekken.json" not in names:
        raise ModelError(
            Reason.CONTRADICTORY_CONFIG,
            f"{files.name} holds several vocabularies: {', '.join(names)}. Keep only the newest.",
        )
    chat_encoder = MistralChatEncoder.load(files.path(names[0]), text_cache_bytes)
    return MistralTokenizer(chat_encoder.text_tokenizer, chat_encoder)
