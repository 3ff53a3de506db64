"""Small tokenizer.json files: byte-level, and of pieces with byte fallback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PRINTABLE: Final = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET: Final = {
    **{byte: chr(byte) for byte in _PRINTABLE},
    **{b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in _PRINTABLE)},
}
"""Byte -> how byte-level vocabularies write it."""


_WORDS: Final = ("the", "in", "image", "er", "what", "and", "is", "this", "pic", "ture", "an")


def _with_merges(vocabulary: dict[str, int], words: tuple[str, ...]) -> list[str]:
    """Add the words, letter by letter, and the merges that build them."""
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    return merges


def _added(first: int, texts: tuple[str, ...], **flags: bool) -> list[dict[str, Any]]:
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": first + i, "content": text, **base, "special": True, **flags}
        for i, text in enumerate(texts)
    ]


def byte_level(
    special: tuple[str, ...], *, bos: str | None = None, words: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A byte-level tokenizer with the special tokens, and with a merged token for each word."""
    vocabulary = {character: i for i, character in enumerate(ALPHABET.values())}
    space = "\u0120"
    merges = _with_merges(vocabulary, (*_WORDS, *(space + word for word in _WORDS), *words))
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    added = _added(len(vocabulary), special)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": split},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {**byte_level, "use_regex": False},
            ],
        },
        "post_processor": _bos_template(bos, added) if bos else {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _bos_template(bos: str, added: list[dict[str, Any]]) -> dict[str, Any]:
    token_id = next(token["id"] for token in added if token["content"] == bos)
    single = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [
        *single,
        {"SpecialToken": {"id": bos, "type_id": 1}},
        {"Sequence": {"id": "B", "type_id": 1}},
    ]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {bos: {"id": bos, "ids": [token_id], "tokens": [bos]}},
    }


def piece_level(
    head: tuple[str, ...], special: tuple[str, ...], *, gemma: bool = False, **flags: bool
) -> dict[str, Any]:
    """Pieces with a space mark and byte fallback, as SentencePiece models are converted."""
    vocabulary = {text: i for i, text in enumerate(head)}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for char in ["\u2581", *map(chr, range(33, 127)), "\n", "é", "ü"]:
        vocabulary[char] = len(vocabulary)
    words = (*_WORDS, *("\u2581" + word for word in _WORDS))
    merges = _with_merges(vocabulary, (*words, "\n\n\n\n") if gemma else words)
    bos = head[2] if gemma else head[1]
    added = _added(0, head) + _added(len(vocabulary), special, **flags)
    space_mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if gemma:
        normalizer: dict[str, Any] = space_mark
        pre_tokenizer = {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
    else:
        prepend = {"type": "Prepend", "prepend": "\u2581"}
        normalizer = {"type": "Sequence", "normalizers": [prepend, space_mark]}
        pre_tokenizer = None
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _bos_template(bos, added),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def special_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Text of a special token -> its ID."""
    return {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
