"""GGUF files: the vocabulary of a llama.cpp model, with that engine's rules.

Only the keys `tokenizer.ggml.*` are read. Two kinds of vocabulary are known. ``llama`` is
SentencePiece's BPE by scores, which sentencepiece encodes with a model made of the file's pieces.
``gpt2`` is byte-level BPE by merges, which `tokenizers` encodes. Source: llama.cpp 0.5.0
``src/llama-vocab.cpp``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self

import numpy as np
import tokenizers
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from tokenizers import decoders, models, pre_tokenizers

from mmroute.errors import ModelError, Reason, did_you_mean, malformed, problem
from mmroute.tokenizers.codec import Loaded
from mmroute.tokenizers.formats.added_tokens import AddedToken
from mmroute.tokenizers.formats.gguf_control import always_shown, known_control_tokens
from mmroute.tokenizers.formats.gguf_header import read_header
from mmroute.tokenizers.formats.gguf_splits import SPLITS, Split
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer, put_around
from mmroute.tokenizers.formats.sentencepiece_model import SentencePieceCodec, processor

_FORMAT: Final = "gguf"
_KINDS: Final = ("llama", "gpt2")
_BYTES: Final = 256
_LARGEST_SCORE: Final = float(np.finfo(np.float32).max)
_MORE: Final = 0x80  # the bit of a byte that says that a protobuf number has more bytes
_NOTE: Final = (
    "the IDs of llama.cpp for this GGUF file; vLLM has no tokenizer of its own for GGUF and takes "
    "the original model's, which may normalize text that llama.cpp does not"
)


class _TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def _named(tokens: list[str]) -> list[str]:
    """The tokens, with llama.cpp's names for those whose text is empty."""
    return [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]


class _Vocabulary(BaseModel):
    """The keys of the header, by the names behind ``tokenizer.ggml.``."""

    model_config = ConfigDict(frozen=True, strict=True)

    model: str
    pre: str | None = None
    tokens: Annotated[list[str], AfterValidator(_named)]
    scores: list[float] | None = None
    token_type: list[int] | None = None
    merges: list[str] | None = None
    bos_token_id: int | None = Field(None, ge=0)
    eos_token_id: int | None = Field(None, ge=0)
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    add_space_prefix: bool = True

    @property
    def types(self) -> Sequence[int]:
        """The type of each token."""
        return self.token_type or [_TokenType.NORMAL] * len(self.tokens)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        size = len(self.tokens)
        for what, values in (("scores", self.scores), ("token_type", self.token_type)):
            if values is not None and len(values) < size:
                raise ValueError(f"{what} has {len(values)} values for {size} tokens")
        if not all(abs(score) <= _LARGEST_SCORE for score in self.scores or ()):
            raise ValueError("scores has a value that is not finite or too large for 32 bits")
        if strange := set(self.types[:size]) - set(_TokenType):
            raise ValueError(f"token_type has a type {min(strange)}, which does not exist")
        if len(set(self.tokens)) != size or not size:
            raise ValueError("tokens is empty or has a token twice")
        return self


def load_gguf(path: Path) -> Loaded:
    """Load the vocabulary of a GGUF file.

    Raises:
        ModelError: `malformed_file`; `unsupported_tokenizer` for another kind of vocabulary, for
            a ``pre`` that is not known, or if sentencepiece is not installed.
    """
    header = read_header(path, lambda key: key.startswith(("tokenizer.", "general.name")))
    vocabulary = _vocabulary(header, path)
    name = str(header.get("general.name", ""))
    codec = _spm(vocabulary, path, name) if vocabulary.model == "llama" else _bpe(vocabulary, path)
    template = header.get("tokenizer.chat_template")
    return Loaded(_FORMAT, codec, (_NOTE,), template if isinstance(template, str) else None)


def _vocabulary(header: Mapping[str, Any], path: Path) -> _Vocabulary:
    prefix = "tokenizer.ggml."
    fields = {key.removeprefix(prefix): v for key, v in header.items() if key.startswith(prefix)}
    kind = fields.get("model")
    if kind is None:
        raise malformed(f"{path} has no {prefix}model: it carries no vocabulary.")
    if kind not in _KINDS:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"{path}: {prefix}model is {kind!r}; only {' and '.join(_KINDS)} are known. Load the "
            "original model's tokenizer instead.",
        )
    try:
        vocabulary = _Vocabulary.model_validate(fields)
    except ValidationError as error:
        first = problem(error.errors()[0])
        raise malformed(f"{path}: {prefix}{first}.") from error
    types = dict(zip(vocabulary.tokens, vocabulary.types, strict=False))
    types |= dict.fromkeys(known_control_tokens(types, fields), _TokenType.CONTROL)
    types |= dict.fromkeys(always_shown(types), _TokenType.USER_DEFINED)
    return vocabulary.model_copy(update={"token_type": list(types.values())})


def _around(
    vocabulary: _Vocabulary, path: Path, bos: int, eos: int, *, add_bos: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens put before and after a sequence.

    The file's flags and IDs decide; where it lacks them, llama.cpp's defaults for its kind do.
    """
    pairs = (
        (vocabulary.add_bos_token, vocabulary.bos_token_id, add_bos, bos),
        (vocabulary.add_eos_token, vocabulary.eos_token_id, False, eos),
    )
    sides = []
    for flag, token_id, default_flag, default_id in pairs:
        chosen = default_id if token_id is None else token_id
        added = default_flag if flag is None else flag
        if added and chosen >= len(vocabulary.tokens):
            raise malformed(
                f"{path}: token {chosen} is to be put around sequences, and the vocabulary ends at "
                f"{len(vocabulary.tokens) - 1}."
            )
        sides.append((chosen,) if added else ())
    return sides[0], sides[1]


def _spm(vocabulary: _Vocabulary, path: Path, name: str) -> SentencePieceCodec:
    if vocabulary.scores is None:
        raise malformed(f"{path}: tokenizer.ggml.scores is missing.")
    plain = processor(_model(vocabulary), described_as=f"the vocabulary of {path}")
    matched = (_TokenType.CONTROL, _TokenType.UNKNOWN, _TokenType.USER_DEFINED)
    # llama.cpp's own rule: the file lacks these flags, so llama.cpp derives them from the name.
    strips = any(part in name.lower() for part in ("phi-3", "phi3"))
    keep = ("<unk>", "<s>", "<|endoftext|>")
    added = {
        text: AddedToken(i, kind != _TokenType.USER_DEFINED, rstrip=strips and text not in keep)
        for i, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=False))
        if kind in matched
    }
    bos, eos = _around(vocabulary, path, 1, 2, add_bos=True)

    def prefixed(text: str) -> list[int]:
        ids: list[int] = plain.encode(f" {text}")
        return ids

    unused = (i for i, kind in enumerate(vocabulary.types) if kind == _TokenType.UNUSED)
    return SentencePieceCodec(
        plain=plain,
        prefixed=prefixed if vocabulary.add_space_prefix else None,
        every_piece=True,
        added=added,
        bos=bos,
        eos=eos,
        hidden=frozenset(unused),
    )


def _model(vocabulary: _Vocabulary) -> bytes:
    """The pieces as a serialized SentencePiece model without normalization or leading space.

    It is written here by the field numbers of ``sentencepiece_model.proto``, because the library's
    own classes for that need protobuf.
    """
    kinds = list(vocabulary.types)
    has_bytes = kinds.count(_TokenType.BYTE) == _BYTES
    unknown = [i for i, kind in enumerate(kinds) if kind == _TokenType.UNKNOWN] or [0]
    kinds = [_TokenType.CONTROL if kind == _TokenType.UNKNOWN else kind for kind in kinds]
    kinds[unknown[0]] = _TokenType.UNKNOWN  # sentencepiece requires exactly one unknown piece
    parts = []
    for text, score, kind in zip(vocabulary.tokens, vocabulary.scores or (), kinds, strict=False):
        # llama.cpp merges characters into unused and user-defined pieces, too.
        merged = kind in (_TokenType.UNUSED, _TokenType.USER_DEFINED)
        if kind == _TokenType.BYTE and not has_bytes:
            merged = True
        encoded = text.encode()
        piece = (
            b"\x0a" + _varint(len(encoded)) + encoded
            + b"\x15" + struct.pack("<f", score)
            + b"\x18" + _varint(_TokenType.NORMAL if merged else kind)
        )  # fmt: skip
        parts.append(b"\x0a" + _varint(len(piece)) + piece)
    trainer = b"\x18\x02" + (b"\x98\x02\x01" if has_bytes else b"")  # BPE; byte_fallback
    normalizer = b"\x18\x00\x20\x00\x28\x01"  # no prefix, keep spaces, escape them
    parts += [b"\x12" + _varint(len(trainer)) + trainer]
    parts += [b"\x1a" + _varint(len(normalizer)) + normalizer]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value % _MORE + _MORE)
        value //= _MORE
    out.append(value)
    return bytes(out)


def _bpe(vocabulary: _Vocabulary, path: Path) -> HfTokenizer:
    split = _split(vocabulary, path)
    if vocabulary.merges is None:
        raise malformed(f"{path}: tokenizer.ggml.merges is missing.")
    ids = {text: i for i, text in enumerate(vocabulary.tokens)}
    merges = list(_pairs(vocabulary.merges, path))
    try:
        backend = tokenizers.Tokenizer(
            models.BPE(vocab=ids, merges=merges, ignore_merges=split.ignore_merges)
        )
    except Exception as error:  # `tokenizers` raises bare Exception
        raise malformed(f"{path}: its tokens and merges do not make a BPE: {error}") from error
    cuts = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        for pattern in split.patterns
    ]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, level])
    backend.decoder = decoders.ByteLevel()
    by_kind = list(zip(vocabulary.tokens, vocabulary.types, strict=False))
    special = (_TokenType.CONTROL, _TokenType.UNKNOWN)
    backend.add_special_tokens([_added(text) for text, kind in by_kind if kind in special])
    backend.add_tokens([_added(t) for t, kind in by_kind if kind == _TokenType.USER_DEFINED])
    bos, eos = _around(vocabulary, path, 11, 11, add_bos=split.add_bos)
    put_around(
        backend,
        vocabulary.tokens[bos[0]] if bos else None,
        vocabulary.tokens[eos[0]] if eos else None,
    )
    # The decoder would take the letters of these tokens for bytes; an unused token has no text.
    matched = (*special, _TokenType.USER_DEFINED)
    verbatim = {ids[text]: text for text, kind in by_kind if kind in matched}
    verbatim |= {ids[text]: "" for text, kind in by_kind if kind == _TokenType.UNUSED}
    return HfTokenizer(backend, verbatim=verbatim)


def _split(vocabulary: _Vocabulary, path: Path) -> Split:
    name = "default" if vocabulary.pre is None else vocabulary.pre
    if name not in SPLITS:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"{path}: tokenizer.ggml.pre is {name!r}, and mmroute does not know how llama.cpp cuts "
            f"text for it{did_you_mean(name, SPLITS)}. Load the original model's tokenizer "
            "instead.",
        )
    return SPLITS[name]


def _pairs(merges: Iterable[str], path: Path) -> Iterable[tuple[str, str]]:
    for merge in merges:
        at = merge.find(" ", 1)  # a part may itself begin with a space
        if at < 0:
            raise malformed(
                f"{path}: tokenizer.ggml.merges has {merge!r}, which is not two parts and a space."
            )
        yield merge[:at], merge[at + 1 :]


def _added(text: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(text, normalized=False)
