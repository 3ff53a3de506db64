"""Small vocabularies in every format, made from nothing: no training, so always the same."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import tokenizers

_PRINTABLE: Final = [*range(33, 127), *range(161, 173), *range(174, 256)]
_ALPHABET: Final = {
    **{byte: chr(byte) for byte in _PRINTABLE},
    **{b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in _PRINTABLE)},
}
SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WORDS: Final = (
    " the", " The", "Hello", " world", "ing", "est", " 's", "'s", "'ll", "12", "123", " 1", "\n\n",
    "  ", "    ", "\r\n", "..", "!!", " !", "://", "é", "école", " É", "中文", "日本", "ко",
    "привет", "مر", "ab", "abc", "cam", "camel", "Case", "HTTP", "ſ", "👍", "\u0301", "e\u0301",
)  # fmt: skip


def byte_pairs() -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """Tokens by ID, and the merges that build them, in their order."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges = []
    for word in _WORDS:
        whole = word.encode()
        for end in range(2, len(whole) + 1):
            if whole[:end] not in tokens:
                tokens.append(whole[:end])
                merges.append((whole[: end - 1], whole[end - 1 : end]))
    return tokens, merges


def written(token: bytes) -> str:
    """As byte-level vocabularies write it."""
    return "".join(_ALPHABET[byte] for byte in token)


def byte_level(*unmerged: str, **options: bool) -> tokenizers.Tokenizer:
    """The vocabulary in a pipeline of the tokenizers library, with tokens that no merge makes."""
    tokens, merges = byte_pairs()
    names = (*map(written, tokens), *unmerged)
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=[(written(a), written(b)) for a, b in merges],
            **options,
        )
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return backend


def write_vocab_and_merges(directory: Path, config: dict[str, Any]) -> Path:
    tokens, merges = byte_pairs()
    vocabulary = {written(token): i for i, token in enumerate(tokens)}
    lines = ["#version: 0.2", *(f"{written(a)} {written(b)}" for a, b in merges)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (directory / "merges.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    added = {
        str(len(tokens) + i): {"content": text, "special": True} for i, text in enumerate(SPECIALS)
    }
    config = {"added_tokens_decoder": added} | config
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def write_ranks(path: Path) -> Path:
    tokens, _ = byte_pairs()
    lines = [f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate(tokens)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="ascii")
    return path
